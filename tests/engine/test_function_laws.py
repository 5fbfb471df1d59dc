"""Functions with event-time timers as whole queries equal a naive one: lagging, idle and late substreams, restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkjet as sj
from sparkjet.testing import CollectingSink
from tests.engine.naive_watermarks import NaiveWatermarks
from tests.engine.run import Event, EventDriver
from tests.laws import RANDOM_RUNS, law
from tests.parameters import mostly_crash
from tests.stateful.functions.visits import ENDED, FORGOTTEN, METHODS, Arrival, all_of, visits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.stream import Stream

MILLISECOND = 1_000
LAG, IDLE = 3 * MILLISECOND, 25
LISTED = ("a",)
MODES = ("one batch", "many batches", "restarts")
QUICK = "transformWithState"


@dataclass(frozen=True)
class Epoch:
    """The rows that arrive in an epoch, and its clock."""

    events: Sequence[Event]
    now: int


def query(method: str, events: Stream) -> Stream:
    """The visits of each key."""
    marked = events.withWatermark(
        "ts", LAG, by="substream", substreams=LISTED, idleTimeout=IDLE, throttle=sj.no_throttling()
    )
    return visits(marked, method)


def check(spark: SparkSession, method: str, epochs: Sequence[Epoch], home: Path, modes: Sequence[str] = MODES) -> None:
    """Feed everything at once, batch by batch with epochs that overlap, and batch by batch with restarts."""
    for mode in modes:
        fed = epochs
        if mode == "one batch":
            fed = [Epoch([event for epoch in epochs for event in epoch.events], epochs[-1].now)]
        expected, late = all_of(arrivals(fed, restarts=mode == "restarts"), method)
        run = EventDriver(spark, home / mode, partial(query, method), overlap=mode == "many batches")
        for epoch in fed:
            run.clock.advance(epoch.now - run.clock.now())
            run.feed(epoch.events)
            if mode == "restarts":
                run.restart()
        run.close_windows()
        run.engine.join()
        (sink,) = run.sinks
        assert isinstance(sink, CollectingSink)
        for number, rows in enumerate(expected, 1):
            found = map(tuple, sink.committed.get(number, []))
            assert sorted(found, key=repr) == sorted(rows, key=repr), (mode, number)
        assert sum(run.late_counts.values()) == late, mode
        assert all(stage.operator.segments == [] for stage in run.engine.state.stages.values())


def arrivals(epochs: Sequence[Epoch], *, restarts: bool) -> list[tuple[list[Arrival], int | None]]:
    """The epochs in milliseconds, with the watermark at their end, and one more that ends the input."""
    watermarks = NaiveWatermarks(1, LAG, IDLE, LISTED)
    found: list[tuple[list[Arrival], int | None]] = []
    for epoch in epochs:
        (reached,) = watermarks.after((epoch.events,), epoch.now)
        rows = [(event.key, event.time // MILLISECOND, event.value) for event in epoch.events]
        found.append((rows, reached // MILLISECOND))
        if restarts:
            watermarks.restarted(epoch.now)
    return [*found, ([], None)]


def event(time: int, key: str | None = "x", substream: str = "a", value: int = 1) -> Event:
    return Event(substream, key, time * MILLISECOND, value)


@st.composite
def runs(draw: st.DrawFn) -> list[Epoch]:
    """Epochs whose events and clock move on; a substream may lag, be silent for long, or appear late."""
    epochs, bases, now = [], {"a": draw(st.integers(20, 60)), "b": draw(st.integers(20, 40))}, 0

    def of(substream: str) -> st.SearchStrategy[Event]:
        times = st.integers(bases[substream] - 8, bases[substream] + 8)
        return st.builds(event, times, st.sampled_from(["x", "y", None]), st.just(substream), st.integers(-5, 5))

    for _ in range(draw(st.integers(2, 4))):
        bases = {name: base + draw(st.integers(0, 20)) for name, base in bases.items()}
        now += draw(st.integers(0, 30))
        epochs.append(Epoch(draw(st.lists(st.sampled_from("ab").flatmap(of), max_size=10)), now))
    return epochs


FIXED = [
    Epoch([event(20), event(20), event(22, "y"), event(21, None), event(31, "z")], 0),
    # Timers that the watermark has just reached, and one that it has not; a late row, and one of a new substream.
    Epoch([event(33, "y"), event(19), event(30, "x", "b")], 10),
    # The new one holds the watermark: what is behind a by ten is not late.
    Epoch([event(60), event(33, "y", "b"), event(29, "w", "b")], 20),
    Epoch([event(61, "z")], 36),
    # Until it is idle: one epoch moves the watermark over both timers of a key.
    Epoch([event(70, "y")], 50),
    Epoch([event(40, "x", "b"), event(71)], 52),
]


def test_the_example_has_what_it_is_there_for() -> None:
    results, late = all_of(arrivals(FIXED, restarts=False), QUICK)
    assert late > 1
    both = {what for epoch in results[:-1] for _, what, _, _ in epoch}
    assert both == {ENDED, FORGOTTEN}
    assert any({(k, ENDED), (k, FORGOTTEN)} <= {row[:2] for row in epoch} for epoch in results[:-1] for k in "xw")
    watermarks = NaiveWatermarks(1, LAG, IDLE, LISTED)
    for epoch in FIXED:
        watermarks.after((epoch.events,), epoch.now)
    assert watermarks.idled > 0


@pytest.mark.long
def test_timers_fire_as_naively_after_restarts(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, QUICK, [FIXED[0], FIXED[1], FIXED[4]], tmp_path, ["restarts"])


# In CI, random queries with the other methods are in `tests/differential`.
@pytest.mark.parametrize("method", mostly_crash(METHODS, quick=(), crash={QUICK}))
def test_timers_fire_as_naively(spark: SparkSession, tmp_path: Path, method: str) -> None:
    check(spark, method, FIXED, tmp_path, ["many batches"])


@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_timers_fire_as_naively_over_random_runs(
    spark: SparkSession, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @law(2 * times)
    @given(method=st.sampled_from(METHODS), epochs=runs())
    def holds(method: str, epochs: list[Epoch]) -> None:
        check(spark, method, epochs, tmp_path_factory.mktemp("functions"))

    holds()
