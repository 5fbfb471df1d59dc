"""A batch that a stop has left to the next run, though Spark has written down that it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.engine.run import Event, EventDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> EventDriver:
    """A query that has run batch 0 and, as Spark's checkpoint has it, batch 1."""

    def sums(events: sj.Stream) -> WindowedStream:
        windows = events.withWatermark("ts", 0).groupBy(sj.window("ts", 10), "key")
        return windows.agg(F.sum("value").alias("n"))

    run = EventDriver(spark, tmp_path, sums)
    run.feed([Event("", "k", 1, 1), Event("", "k", 12, 2)])
    directory = run.checkpoint.directory
    (directory / "offsets" / "1").write_text("v1\n{}\n1")
    (directory / "commits" / "1").write_text("v1\n{}")
    return run


def test_it_is_run_by_the_next_run(run: EventDriver) -> None:
    run.engine.refuse(1)
    run.restart()
    assert run.engine.next_batch == 1
    run.feed([Event("", "k", 13, 3)])
    run.close_windows()
    assert [row[2] for row in run.results()] == [1, 5]


def test_a_stop_may_refuse_it_again(run: EventDriver) -> None:
    run.engine.refuse(1)
    run.restart()
    run.engine.refuse(1)
    run.restart()
    assert run.engine.next_batch == 1


def test_any_other_batch_that_no_record_has_is_a_missing_record(run: EventDriver) -> None:
    for refused in (None, "0", "2", ""):
        if refused is not None:
            (run.checkpoint.directory / "refused").write_text(refused)
        with pytest.raises(sj.RecoveryError, match="a commit of batch 1, but the newest record is of batch 0"):
            run.restart()


def test_nothing_can_follow_it(run: EventDriver) -> None:
    run.engine.refuse(1)
    (run.checkpoint.directory / "commits" / "2").write_text("v1\n{}")
    with pytest.raises(sj.RecoveryError, match="a commit of batch 2"):
        run.restart()
