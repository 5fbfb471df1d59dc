"""A clock that jumps forward and is set back, under the real engine: whatever counts by it goes on."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.changes import Changes
from sparkjet.engine.engine import IDLE
from sparkjet.snapshots.record import EpochKind
from tests.engine.run import Event, EventDriver
from tests.engine.test_expiring import Forgetful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream

SECOND = 1_000_000
YEAR = 365 * 24 * 3600 * SECOND
START = 1_700_000_000 * SECOND


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Callable[..., EventDriver]:
    """A query of tumbling windows of ten seconds by substream, on a clock that can be set."""

    def run(policy: Any = 0, **settings: Any) -> EventDriver:
        def sums(events: sj.Stream) -> WindowedStream:
            stream = events.withWatermark("ts", policy, by="substream", **settings)
            return stream.groupBy(sj.window("ts", "10 seconds"), "key").agg(F.sum("value").alias("n"))

        run = EventDriver(spark, tmp_path, sums, sinks=[Forgetful()])
        run.clock.advance(START)
        run.restart()
        return run

    return run


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines about the clock."""
    return [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]


def pass_time(run: EventDriver, seconds: float) -> None:
    """Let the clock go on, and the engine look at it."""
    run.clock.advance(int(seconds * SECOND))
    run.engine.tick()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.crash
def test_after_a_jump_and_back_an_idle_substream_holds_no_longer_than_its_timeout(
    query: Callable[..., EventDriver], caplog: pytest.LogCaptureFixture, *, restart: bool
) -> None:
    run = query(substreams=["a", "b"], idleTimeout="1 minute")
    run.clock.advance(YEAR)
    run.feed([Event("a", "k", 5 * SECOND), Event("b", "k", 5 * SECOND)])
    assert run.engine.record.clock == START + YEAR
    run.clock.advance(-YEAR)
    with caplog.at_level(logging.WARNING, "sparkjet"):
        if restart:
            run.restart()
        run.feed([Event("a", "k", 25 * SECOND)])
        assert len(said(caplog)) == 1
    assert run.engine.record.clock == START
    pass_time(run, 59)
    run.feed([Event("a", "k", 26 * SECOND)])
    assert run.results() == []
    pass_time(run, 1)
    assert [row[-1] for row in run.results()] == [2]
    assert len(said(caplog)) == 1


def test_of_a_jump_between_two_epochs_nothing_stays(query: Callable[..., EventDriver]) -> None:
    run = query(sj.limiting_lag_and_delay("1 second", "20 seconds"), substreams=["a"])
    run.feed([Event("a", "k", 5 * SECOND)])
    pass_time(run, YEAR / SECOND)
    pass_time(run, -YEAR / SECOND)
    run.feed([Event("a", "k", 10 * SECOND)])
    for _ in range(20):
        pass_time(run, 1)
    assert [row[-1] for row in run.results()] == [1]


def test_housekeeping_goes_on(query: Callable[..., EventDriver]) -> None:
    run = query(substreams=["a"])
    run.clock.advance(YEAR)
    run.feed([Event("a", "k", 5 * SECOND), Event("a", "k", 25 * SECOND)])
    run.clock.advance(-YEAR)
    run.engine.settle(last=False)
    run.clock.advance(IDLE)
    run.engine.settle(last=False)
    assert run.engine.record.kind is EpochKind.BATCH
    run.clock.advance(1)
    run.engine.settle(last=False)
    assert run.engine.record.kind is EpochKind.SETTLED


def test_early_rows_go_on(spark: SparkSession, query: Callable[..., EventDriver]) -> None:
    run = query(substreams=["a"])
    state, plan = run.engine.state, run.plan
    state.early_at["out0"] = START + YEAR
    (output,) = plan.outputs
    early = dataclasses.replace(plan, outputs=(dataclasses.replace(output, early_period=30 * SECOND),))
    state.changes = {"out0": Changes(output.stage)}
    run.feed([Event("a", "k", 5 * SECOND)])
    assert state.early_due(early, START) == []
    assert state.early_due(early, START + 29 * SECOND) == []
    assert state.early_due(early, START + 30 * SECOND) == ["out0"]
