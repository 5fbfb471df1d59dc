"""Epochs that overlap: what runs beside what, and what becomes of an end that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.state.partitions import LOST
from tests.engine.run import Event, EventDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream

PATIENCE = 120.0
"""Seconds after which a test fails that would hang otherwise."""


def overlapping(
    spark: SparkSession, home: Path, listener: Callable[[EpochPhase, int], None], *, overlap: bool = True
) -> EventDriver:
    """A query of tumbling windows."""

    def query(events: sj.Stream) -> WindowedStream:
        stream = events.withWatermark("ts", 0, by="substream", substreams=["a"])
        return stream.groupBy(sj.window("ts", 10), "key").agg(F.sum("value").alias("n"))

    return EventDriver(spark, home, query, listener, overlap=overlap)


def feed_three(run: EventDriver) -> None:
    """Three batches, of which the second has a row that the first one has made late."""
    run.feed([Event("a", "k", 1, 1), Event("a", "k", 12, 2)])
    run.feed([Event("a", "k", 3, 100), Event("a", "k", 25, 3)])
    run.feed([Event("a", "k", 31, 4)])
    run.close_windows()


RESULT = [1, 2, 3, 4]


def sums(run: EventDriver) -> list[int]:
    """The results in the order in which they were committed."""
    return [row[2] for row in run.results()]


def test_the_next_epoch_is_aggregated_beside_the_end_of_this_one(spark: SparkSession, tmp_path: Path) -> None:
    begun, phases = threading.Event(), []

    def listener(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.BEGIN, 2):
            begun.set()
        if (phase, epoch) == (EpochPhase.PREPARE, 1):
            assert begun.wait(PATIENCE)
        phases.append((phase, epoch))

    run = overlapping(spark, tmp_path, listener)
    feed_three(run)
    assert sums(run) == RESULT
    assert run.engine.state.late.total() == 1
    for epoch in (2, 3):
        assert phases.index((EpochPhase.ADVANCE, epoch)) > phases.index((EpochPhase.CLEAN, epoch - 1))
    assert phases.index((EpochPhase.BEGIN, 2)) < phases.index((EpochPhase.DECIDE, 1))


def test_epochs_do_not_overlap_unless_asked(spark: SparkSession, tmp_path: Path) -> None:
    phases: list[tuple[EpochPhase, int]] = []
    run = overlapping(spark, tmp_path, lambda phase, epoch: phases.append((phase, epoch)), overlap=False)
    feed_three(run)
    assert [epoch for _, epoch in phases] == sorted(epoch for _, epoch in phases)


@pytest.mark.crash
@pytest.mark.interpreted
def test_an_end_that_fails_is_raised_before_the_next_epoch_moves_the_state(spark: SparkSession, tmp_path: Path) -> None:
    def fail(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.PREPARE, 1):
            raise OSError("the disk is full")
        assert (phase, epoch) != (EpochPhase.ADVANCE, 2)

    run = overlapping(spark, tmp_path, fail)
    run.feed([Event("a", "k", 1, 1), Event("a", "k", 12, 2)])
    with pytest.raises(OSError, match="the disk is full"):
        run.feed([Event("a", "k", 25, 3)])
    assert run.engine.record.epoch == 0
    run = overlapping(spark, tmp_path, lambda phase, epoch: None)
    feed_three(run)
    assert sums(run) == RESULT


@pytest.mark.crash
@pytest.mark.interpreted
def test_state_lost_in_an_end_is_restored_and_both_epochs_are_run_again(spark: SparkSession, tmp_path: Path) -> None:
    lost = []

    def lose(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) in {(EpochPhase.PREPARE, 1), (EpochPhase.SAVE, 3)} and (phase, epoch) not in lost:
            lost.append((phase, epoch))
            raise RuntimeError(LOST)

    run = overlapping(spark, tmp_path, lose)
    feed_three(run)
    assert len(lost) == 2
    assert sums(run) == RESULT
    assert run.engine.state.late.total() == 1


# In CI, drivers whose epochs overlap are killed at each step in `crash/farmed/test_steps.py`.
@pytest.mark.long
def test_a_batch_that_spark_has_committed_and_no_record_has_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    committed, stopped = threading.Event(), threading.Event()

    def die(phase: EpochPhase, epoch: int) -> None:
        if (phase, epoch) == (EpochPhase.PREPARE, 2) and not stopped.is_set():
            assert committed.wait(PATIENCE)
            stopped.set()
            raise OSError("killed")

    run = overlapping(spark, tmp_path, die)
    run.feed([Event("a", "k", 1, 1), Event("a", "k", 12, 2)])
    run.feed([Event("a", "k", 3, 100), Event("a", "k", 25, 3)])
    # As Spark does, whose commit follows the return of foreachBatch, and then its plan of the next batch.
    directory = run.checkpoint.directory
    assert (directory / "commits" / "1").is_file()
    (directory / "offsets" / "2").write_text("v1\n{}\n2")
    committed.set()
    with pytest.raises(OSError, match="killed"):
        run.engine.join()
    run.restart()
    assert run.engine.next_batch == 1
    # The rows of the lost batch come again, without being sent again.
    run.feed([])
    run.feed([Event("a", "k", 31, 4)])
    run.close_windows()
    assert sums(run) == RESULT
