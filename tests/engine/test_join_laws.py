"""Joins as whole queries equal naive ones: lagging, idle and late substreams, in one epoch, in many, and restarted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.stateful.interval_join import FOREVER
from sparkjet.stateful.join_type import JoinType
from sparkjet.testing import CollectingSink
from tests.engine.naive_watermarks import NaiveWatermarks
from tests.engine.run import Event, EventDriver
from tests.laws import RANDOM_RUNS, law
from tests.parameters import mostly_crash
from tests.stateful.join_model import Arrived, JoinBatch, JoinCase, Pair, naive

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from sparkjet.api.stream import Stream

LAG, IDLE = 4, 25
LISTED = ("a",)
MODES = ("one batch", "many batches", "restarts")


@dataclass(frozen=True)
class Epoch:
    """The rows that arrive on both sides in an epoch, and its clock."""

    left: Sequence[Event]
    right: Sequence[Event]
    now: int


@dataclass(frozen=True)
class Joined:
    """A join: its type, and its bounds in microseconds, None where there is none."""

    how: JoinType
    lower: int | None = -5
    upper: int | None = 10

    def __str__(self) -> str:
        return f"{self.how.value} {self.lower} {self.upper}"

    @property
    def bounds(self) -> tuple[int, int]:
        """The bounds as numbers."""
        return -FOREVER if self.lower is None else self.lower, FOREVER if self.upper is None else self.upper

    def query(self, left: Stream, right: Stream) -> Stream:
        """The same as a query of sparkjet."""
        sides = [
            each.withWatermark(
                "ts", LAG, by="substream", substreams=LISTED, idleTimeout=IDLE, throttle=sj.no_throttling()
            ).alias(name)
            for each, name in ((left, "l"), (right, "r"))
        ]
        parts = ["l.key = r.key"]
        parts += [] if self.lower is None else [f"unix_micros(r.ts) >= unix_micros(l.ts) + {self.lower}"]
        parts += [] if self.upper is None else [f"unix_micros(r.ts) - unix_micros(l.ts) <= {self.upper}"]
        joined = sides[0].join(sides[1], F.expr(" AND ".join(parts)), self.how.value)
        given = "l" if self.how in {JoinType.SEMI, JoinType.ANTI} else "lr"
        names = {side: (f"unix_micros({side}.ts) AS {side}0", f"{side}.key AS {side}1") for side in given}
        return joined.selectExpr(*(each for side in given for each in (*names[side], f"{side}.value AS {side}2")))


BOUNDED = [Joined(how) for how in JoinType]
UNBOUNDED = [
    Joined(JoinType.INNER, None, None),
    Joined(JoinType.INNER, -5, None),
    Joined(JoinType.INNER, None, 10),
]
CASES = BOUNDED + UNBOUNDED
OFTEN = {UNBOUNDED[0]}
"""The case of `make test-crash`; random queries with each type of join, within bounds, are in `tests/differential`."""


def check(spark: SparkSession, case: Joined, epochs: Sequence[Epoch], home: Path, modes: Sequence[str] = MODES) -> None:
    """Feed everything at once, batch by batch with epochs that overlap, and batch by batch with restarts."""
    for mode in modes:
        fed = epochs
        if mode == "one batch":
            lefts, rights = ([e for epoch in epochs for e in side(epoch)] for side in (_left, _right))
            fed = [Epoch(lefts, rights, epochs[-1].now)]
        expected, late = naive(JoinCase(case.how, *case.bounds, batches(fed, restarts=mode == "restarts")))
        run = EventDriver(spark, home / mode, case.query, overlap=mode == "many batches", inputs=2)
        for epoch in fed:
            run.clock.advance(epoch.now - run.clock.now())
            run.feed(epoch.left, epoch.right)
            if mode == "restarts":
                run.restart()
        run.close_windows()
        run.engine.join()
        (sink,) = run.sinks
        assert isinstance(sink, CollectingSink)
        for number, pairs in enumerate(expected, 1):
            found = list(map(_pair, sink.committed.get(number, [])))
            assert sorted(found, key=repr) == sorted(pairs, key=repr), (mode, number)
        assert sum(run.late_counts.values()) == sum(late), mode
        held = [sum(each.statistics.rows for each in side.segments) for side in _sides(run)]
        accepted = [sum(len(side(epoch)) for epoch in fed) - late[n] for n, side in enumerate((_left, _right))]
        # A row whose partners may come at any time is held forever, and no other.
        endless = [bound is None for bound in (case.upper, case.lower)]
        assert held == [rows if ever else 0 for rows, ever in zip(accepted, endless, strict=True)], mode


def batches(epochs: Sequence[Epoch], *, restarts: bool) -> list[JoinBatch]:
    """The epochs with the watermarks of both sides at their end, and one more that ends the input."""
    watermarks = NaiveWatermarks(2, LAG, IDLE, LISTED)
    found = []
    for epoch in epochs:
        left, right = watermarks.after((epoch.left, epoch.right), epoch.now)
        found.append(JoinBatch(_arrived(epoch.left), _arrived(epoch.right), (left, right)))
        if restarts:
            watermarks.restarted(epoch.now)
    return [*found, JoinBatch([], [], None)]


def _sides(run: EventDriver) -> Any:
    (stage,) = run.engine.state.stages.values()
    return stage.operator.sides


def _left(epoch: Epoch) -> Sequence[Event]:
    return epoch.left


def _right(epoch: Epoch) -> Sequence[Event]:
    return epoch.right


def _arrived(events: Sequence[Event]) -> list[Arrived]:
    return [Arrived(event.time, event.key, event.value) for event in events]


def _pair(row: Row) -> Pair:
    sides = [None if row[at] is None else Arrived(*row[at : at + 3]) for at in range(0, len(row), 3)]
    return sides[0], sides[1] if len(sides) > 1 else None


@st.composite
def runs(draw: st.DrawFn) -> list[Epoch]:
    """Epochs whose events and clock move on; a substream may lag, be silent for long, or appear late."""
    epochs, bases, now = [], {"a": draw(st.integers(-30, 10)), "b": draw(st.integers(-40, 0))}, 0

    def events() -> Sequence[Event]:
        each: Callable[[str], st.SearchStrategy[Event]] = lambda name: st.builds(  # noqa: E731 - a strategy by name
            Event,
            substream=st.just(name),
            key=st.sampled_from(["x", "y", None]),
            time=st.integers(bases[name] - 10, bases[name] + 10),
            value=st.integers(0, 3),
        )
        return draw(st.lists(st.sampled_from("ab").flatmap(each), max_size=8))

    for _ in range(draw(st.integers(2, 4))):
        bases = {name: base + draw(st.integers(0, 25)) for name, base in bases.items()}
        now += draw(st.integers(0, 30))
        epochs.append(Epoch(events(), events(), now))
    return epochs


def event(time: int, key: str | None = "x", substream: str = "a", value: int = 0) -> Event:
    return Event(substream, key, time, value)


# Bounds -5 and 10.
FIXED = [
    # On both bounds and beside them, a null key, two equal rows.
    Epoch([event(0), event(0), event(3, None), event(40, "y")], [event(-5), event(-6), event(10), event(11)], 0),
    # The left side has moved on: what comes there is late, and the right side, which lags, still finds partners.
    Epoch([event(35), event(36, "y"), event(41, "z", "b")], [event(9), event(31), event(2, None)], 10),
    # Both are silent; then neither b of the left side nor a of the right side is waited for.
    Epoch([event(70)], [event(50, "z", "b")], 20),
    Epoch([event(71)], [], 36),
    Epoch([event(75, "z")], [event(45, "z", "b"), event(80, "z", "b"), event(20, "x")], 37),
    Epoch([], [], 70),
]


def test_the_example_has_what_it_is_there_for() -> None:
    results, late = naive(JoinCase(JoinType.FULL, -5, 10, batches(FIXED, restarts=False)))
    assert min(late) > 0
    assert [len(each) for each in results] == [6, 3, 2, 0, 1, 2, 2]
    watermarks = NaiveWatermarks(2, LAG, IDLE, LISTED)
    reached = [watermarks.after((epoch.left, epoch.right), epoch.now) for epoch in FIXED]
    assert watermarks.idled > 0
    # Each side by its own, and both by the query's when nothing is waited for.
    assert any(left != right for left, right in reached)
    assert reached[-1][0] == reached[-1][1]


@pytest.mark.long
def test_a_join_is_the_naive_one_after_restarts(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, Joined(JoinType.FULL), [FIXED[0], FIXED[2], FIXED[5]], tmp_path, ["restarts"])


@pytest.mark.parametrize("case", mostly_crash(CASES, quick=(), name=str, crash=OFTEN))
def test_a_join_is_the_naive_one(spark: SparkSession, tmp_path: Path, case: Joined) -> None:
    check(spark, case, FIXED, tmp_path, ["many batches"])


@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_joins_are_the_naive_ones_over_random_runs(
    spark: SparkSession, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(2 * times)
    @given(case=st.sampled_from(CASES), epochs=runs())
    def holds(case: Joined, epochs: list[Epoch]) -> None:
        check(spark, case, epochs, tmp_path_factory.mktemp("joins"))

    holds()
