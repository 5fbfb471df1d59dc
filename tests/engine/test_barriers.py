"""Jet's pitfalls at its snapshot barriers (the BAR cases), shown not to occur: a batch boundary is an aligned barrier.

No counterpart: B03, B04, B06 (a queue that has ended is not waited for: batches have no queues; a substream that has
ended is retired, see tests/time/test_retirement.py), B07, B08 (coalescing, see the COA cases).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.sinks.protocol import Guarantee
from sparkjet.time import MIN
from tests.engine.run import Event, EventDriver
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream

AFTER_THE_BATCH = pytest.mark.parametrize(
    ("guarantee", "phase"),
    mostly_crash(
        [
            (Guarantee.AT_LEAST_ONCE, sj.EpochPhase.ADVANCE),
            (Guarantee.AT_LEAST_ONCE, sj.EpochPhase.PREPARE),
            (Guarantee.EXACTLY_ONCE, sj.EpochPhase.SAVE),
        ],
        # In CI, exactly once is what drivers are killed for in `crash/farmed/test_steps.py`.
        quick=(),
        crash={(Guarantee.AT_LEAST_ONCE, sj.EpochPhase.ADVANCE)},
    ),
)
"""Where the next batch has been consumed but not decided."""


def pairs(events: sj.Stream) -> WindowedStream:
    """An operator that needs both halves: a session and what is in it."""
    stream = events.withWatermark("ts", 0, by="substream", substreams=["a", "b"])
    return stream.groupBy(sj.session_window("ts", 10), "key").agg(F.collect_list("value").alias("found"))


@AFTER_THE_BATCH
def test_b11_both_halves_of_a_pair_meet_after_a_crash(
    spark: SparkSession, tmp_path: Path, guarantee: Guarantee, phase: sj.EpochPhase
) -> None:
    run = EventDriver(spark, tmp_path, pairs, guarantee=guarantee)
    run.feed([Event("a", "k", 1, 1), Event("b", "other", 1)])
    with run.crash(at=phase):
        run.feed([Event("b", "k", 2, 2)])
    run.restart()
    run.feed([])
    run.feed([Event("a", "end", 100), Event("b", "end", 100)])
    assert [row[2] for row in run.results() if row[1] == "k"] == [[1, 2]]


def test_b01_b02_b09_no_row_from_behind_the_barrier_is_in_the_saved_state(spark: SparkSession, tmp_path: Path) -> None:
    run = EventDriver(spark, tmp_path, pairs, guarantee=Guarantee.AT_LEAST_ONCE)
    run.feed([Event("a", "k", 1, 1), Event("b", "k", 2, 2)])
    with run.crash(at=sj.EpochPhase.SAVE):
        run.feed([Event("a", "k", 3, 3), Event("b", "k", 4, 4)])
    run.restart()
    (aggregation,) = run.engine.state.stages.values()
    early = aggregation.operator.early()
    assert early is not None
    assert [row["result0"] for row in early.collect()] == [[1, 2]]


@AFTER_THE_BATCH
def test_b05_the_watermark_belongs_to_the_epoch_and_never_goes_back(
    spark: SparkSession, tmp_path: Path, guarantee: Guarantee, phase: sj.EpochPhase
) -> None:
    run = EventDriver(spark, tmp_path, pairs, guarantee=guarantee)
    assert run.reached == MIN
    run.feed([Event("a", "k", 20), Event("b", "k", 30)])
    assert run.reached == 20
    with run.crash(at=phase):
        run.feed([Event("a", "k", 50), Event("b", "k", 60)])
    run.restart()
    # What the lost epoch had come to is forgotten with it; what was decided is not.
    assert run.reached == 20
    # The lost rows come again, and with them one that is late by what was decided.
    run.feed([Event("a", "k", 19), Event("b", "k", 20)])
    assert run.reached == 50
    assert run.engine.state.late == {"a": 1}
    run.feed([Event("a", "k", 55), Event("b", "k", 60)])
    run.restart()
    run.feed([Event("a", "k", 1), Event("b", "k", 2)])
    assert run.reached == 55


# In CI, `api/test_query.py` stops a query and starts it again, and `test_quiet_streams.py` waits for a substream.
@pytest.mark.long
def test_b10_a_query_that_is_stopped_has_decided_everything_it_has_read(spark: SparkSession, tmp_path: Path) -> None:
    run = EventDriver(spark, tmp_path, pairs)
    run.feed([Event("a", "k", 1, 1)])
    run.stop()
    run.restart()
    # Substream b has not come to the barrier's time: its end must not release what waits for it.
    assert run.results() == []
    run.feed([Event("b", "k", 3, 2)])
    run.feed([Event("a", "end", 100), Event("b", "end", 100)])
    assert [row[2] for row in run.results()] == [[1, 2]]
