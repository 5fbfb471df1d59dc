"""Unions, sessions, policies and windows over windows equal a naive event-by-event model, restarted or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.testing import CollectingSink
from sparkjet.time import MIN, WindowGrid
from tests.engine.run import Event, EventDriver
from tests.laws import RANDOM_RUNS, law, only_examples
from tests.parameters import mostly_crash
from tests.windows import model, session_model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream

Rows = list[model.Row]
SUM: model.Fold = lambda events: sum(event.value for event in events)  # noqa: E731 - a fold, named once
MOST: model.Fold = lambda events: max(event.value for event in events)  # noqa: E731


@dataclass(frozen=True)
class Epoch:
    """The rows that arrive in an epoch, and its clock."""

    events: Sequence[Event]
    now: int


@dataclass(frozen=True)
class Level:
    """A window of the model: batches in, rows by batch out."""

    windows: Callable[[Sequence[model.Batch]], tuple[list[Rows], int]]
    lag: int = 0
    """How far the next level's watermark is behind."""


@dataclass(frozen=True)
class Case:
    """A query and the model of it; ``policies`` maps the prefix of each input to lag and wall-clock lag (or None)."""

    query: Callable[..., list[WindowedStream]]
    levels: Sequence[Level]
    policies: dict[str, tuple[int, int | None]]


def _sliding(size: int, step: int, fold: model.Fold) -> Level:
    return Level(lambda batches: model.naive(batches, WindowGrid(size, step), [fold]))


def _sessions(gap: int, longest: int | None, fold: model.Fold) -> Level:
    return Level(lambda batches: session_model.naive(batches, gap, longest, [fold]), lag=1)


def _marked(events: sj.Stream, policy: Any) -> sj.Stream:
    return events.withWatermark("ts", policy, by="substream", substreams=["a"], throttle=sj.no_throttling())


def _union_of_policies(left: sj.Stream, right: sj.Stream) -> list[WindowedStream]:
    left = _marked(left, sj.limiting_lag(3))
    right = _marked(right, sj.limiting_timestamp_and_wall_clock_lag(0, 20))
    tens = left.union(right).groupBy(sj.window("ts", 8, 4), "key").agg(F.sum("value").alias("n"))
    longer = tens.groupBy(sj.window("window", 24, 8), "key").agg(F.max("n").alias("n"))
    longest = longer.groupBy(sj.window("window", 48), "key").agg(F.sum("n").alias("n"))
    return [tens, longer, longest]


def _sessions_then_windows(longest: int | None) -> Callable[[sj.Stream], list[WindowedStream]]:
    def query(events: sj.Stream) -> list[WindowedStream]:
        stream = _marked(events, sj.limiting_lag(2))
        sessions = stream.groupBy("key", sj.session_window("ts", 6, longest)).agg(F.sum("value").alias("n"))
        busy = sessions.groupBy(sj.window("session_window", 10, 5), "key").agg(F.max("n").alias("n"))
        again = busy.groupBy(sj.session_window("window", 7), "key").agg(F.sum("n").alias("n"))
        return [sessions, busy, again]

    return query


CASES = {
    "union of policies, three levels": Case(
        _union_of_policies,
        [_sliding(8, 4, SUM), _sliding(24, 8, MOST), _sliding(48, 48, SUM)],
        {"1/": (3, None), "2/": (0, 20)},
    ),
    "sessions, windows, sessions": Case(
        _sessions_then_windows(None),
        [_sessions(6, None, SUM), _sliding(10, 5, MOST), _sessions(7, None, SUM)],
        {"": (2, None)},
    ),
    "cut sessions, windows, sessions": Case(
        _sessions_then_windows(9),
        [_sessions(6, 9, SUM), _sliding(10, 5, MOST), _sessions(7, None, SUM)],
        {"": (2, None)},
    ),
}


MODES = ("one batch", "overlapping", "restarts")
OFTEN = {"union of policies, three levels": ("overlapping",)}
"""The cases and their modes in `make test-crash`; windows and sessions are restarted in `windows/test_sliding.py` and
`windows/test_sessions.py`, and those over others in the fuzzer's queries."""


class NaiveWatermark:
    """The least of all substreams of all inputs, each by its policy, seen event by event."""

    def __init__(self, policies: dict[str, tuple[int, int | None]]) -> None:
        self._policies = policies
        self._tops = {f"{prefix}a": MIN for prefix in policies}
        self.value = MIN

    def after(self, epoch: Epoch) -> int:
        """The watermark at the end of an epoch."""
        for event in epoch.events:
            prefix = next(prefix for prefix in self._policies if event.substream.startswith(prefix))
            reached = event.time - self._policies[prefix][0]
            self._tops[event.substream] = max(self._tops.get(event.substream, MIN), reached)
        for substream, top in self._tops.items():
            wall = next(lags[1] for prefix, lags in self._policies.items() if substream.startswith(prefix))
            self._tops[substream] = top if wall is None else max(top, epoch.now - wall)
        self.value = max(self.value, min(self._tops.values()))
        return self.value


def expected(case: Case, epochs: Sequence[Epoch]) -> tuple[list[list[Rows]], int]:
    """Rows by level and epoch, the last epoch being the one that closes everything; and the late events."""
    naive = NaiveWatermark(case.policies)
    marks: list[int | None] = [naive.after(epoch) for epoch in epochs]
    marks.append(None)
    fed = [[model.Event(e.key, e.time, e.value) for e in epoch.events] for epoch in epochs] + [[]]
    levels, late, lag = [], 0, 0
    for level in case.levels:
        batches = [
            model.Batch(events, None if mark is None else max(MIN, mark - lag))
            for events, mark in zip(fed, marks, strict=True)
        ]
        rows, dropped = level.windows(batches)
        late = late or dropped
        levels.append(rows)
        fed = [[model.Event(key, end - 1, values[0]) for key, _, end, values in found] for found in rows]
        lag += level.lag
    return levels, late


def check(spark: SparkSession, case: Case, epochs: Sequence[Epoch], home: Path, modes: Sequence[str] = MODES) -> None:
    """Feed everything at once, batch by batch with epochs that overlap, and batch by batch with restarts."""
    together = [Epoch([event for epoch in epochs for event in epoch.events], epochs[-1].now)]
    for mode in modes:
        fed = together if mode == "one batch" else epochs
        levels, late = expected(case, fed)
        run = EventDriver(spark, home / mode, case.query, overlap=mode == "overlapping", inputs=len(case.policies))
        naive = NaiveWatermark(case.policies)
        for epoch in fed:
            run.clock.advance(epoch.now - run.clock.now())
            run.feed(*(_of_input(epoch.events, prefix) for prefix in case.policies))
            assert run.reached == naive.after(epoch)
            if mode == "restarts":
                run.restart()
        run.close_windows()
        run.engine.join()
        for sink, rows in zip(run.sinks, levels, strict=True):
            assert isinstance(sink, CollectingSink)
            found = [sink.committed.get(number, []) for number in range(1, len(fed) + 2)]
            assert [sorted(map(_plain, each), key=repr) for each in found] == [sorted(each, key=repr) for each in rows]
        assert run.engine.state.late.total() == late
        assert all(not stage.operator.segments for stage in run.engine.state.stages.values())


def _of_input(events: Sequence[Event], prefix: str) -> list[Event]:
    """The events of one input, as they are before the union has put its prefix in front of their substreams."""
    return [
        replace(event, substream=event.substream.removeprefix(prefix))
        for event in events
        if event.substream.startswith(prefix)
    ]


def _plain(row: tuple[Any, ...]) -> model.Row:
    """A result row as the model has it, whichever of key and window comes first."""
    window, key = (row[0], row[1]) if hasattr(row[0], "start") else (row[1], row[0])
    return key, _microseconds(window["start"]), _microseconds(window["end"]), (row[2],)


def _microseconds(time: Any) -> int:
    return round(time.timestamp() * 1_000_000)


@st.composite
def runs(draw: st.DrawFn, prefixes: Sequence[str]) -> list[Epoch]:
    """Epochs whose events and clock move on, with disorder, lagging and new substreams."""
    epochs, base, now = [], draw(st.integers(-30, 10)), 0
    for _ in range(draw(st.integers(2, 4))):
        base += draw(st.integers(0, 25))
        now += draw(st.integers(0, 30))
        events = draw(
            st.lists(
                st.builds(
                    Event,
                    substream=st.builds("".join, st.tuples(st.sampled_from(prefixes), st.sampled_from("ab"))),
                    key=st.sampled_from(["x", "y", None]),
                    time=st.integers(base - 12, base + 12),
                    value=st.integers(-5, 5),
                ),
                max_size=20,
            )
        )
        epochs.append(Epoch(events, now))
    return epochs


FIXED = [
    Epoch([Event("a", "x", 1), Event("b", "x", 3, 2), Event("a", "y", -4), Event("a", None, 9, -3)], 0),
    Epoch([Event("b", "x", 11, 5), Event("a", "x", 10), Event("a", "x", 2, 7), Event("a", None, 14)], 30),
    Epoch([], 31),
    Epoch([Event("a", "y", 43), Event("b", "x", 20, 4), Event("a", "x", 55)], 33),
]
"""Disorder, a late event, a substream that appears, an empty epoch, a jump."""
ON_THE_EDGE = [Epoch([Event("a", "x", 4)] * 2, 0), Epoch([Event("a", "y", 12)] * 2, 1), Epoch([Event("a", "y", 30)], 2)]
"""A session that ends at the watermark stays open: its result must not be late for the next level."""


def fixed(case: Case, epochs: Sequence[Epoch]) -> list[Epoch]:
    """The epochs with the case's inputs, in turn."""
    prefixes = list(case.policies)
    return [
        replace(
            epoch,
            events=[
                replace(event, substream=prefixes[number % len(prefixes)] + event.substream)
                for number, event in enumerate(epoch.events)
            ],
        )
        for epoch in epochs
    ]


@pytest.mark.parametrize(
    ("name", "modes"),
    mostly_crash(
        [*OFTEN.items(), *((name, MODES) for name in CASES)],
        quick=(),
        name=lambda each: f"{each[0]}; {' '.join(each[1])}",
        crash=OFTEN.items(),
    ),
)
def test_the_engine_equals_the_naive_model(
    spark: SparkSession, name: str, modes: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = CASES[name]

    @example(epochs=fixed(case, FIXED))
    @example(epochs=fixed(case, ON_THE_EDGE))
    @only_examples()
    @given(epochs=runs(list(case.policies)))
    def holds(epochs: list[Epoch]) -> None:
        check(spark, case, epochs, tmp_path_factory.mktemp("laws"), modes)

    holds()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_the_engine_equals_the_naive_model_over_random_runs(
    spark: SparkSession, name: str, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = CASES[name]

    @law(times)
    @given(epochs=runs(list(case.policies)))
    def holds(epochs: list[Epoch]) -> None:
        check(spark, case, epochs, tmp_path_factory.mktemp("laws"))

    holds()
