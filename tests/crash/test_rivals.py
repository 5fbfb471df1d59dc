"""Concurrent drivers of one query: the last to take over continues, the others report that they are fenced."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparkjet import EpochPhase, FencedError, SystemClock
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import EpochKind
from tests.crash.conftest import WHOLE
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import JOBS, Place
from tests.crash.readers import newest_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = JOBS["sums"]
PATIENCE = 300


class StoppedClock(SystemClock):
    """Blocks its readers until it is released."""

    def __init__(self) -> None:
        self.read = threading.Event()
        self.go_on = threading.Event()

    def now(self) -> int:
        self.read.set()
        assert self.go_on.wait(PATIENCE)
        return super().now()


def test_a_running_query_learns_that_it_was_taken_over(spark: SparkSession, half_done: Place) -> None:
    running = SUMS.writer(spark, half_done, until_end=False).start()
    SUMS.run(spark, half_done)
    with pytest.raises(FencedError, match="Another driver has taken over query"):
        running.awaitTermination(PATIENCE)
    check(half_done, SUMS, batches=WHOLE, closings=[WHOLE], swept=False)


def test_a_query_without_input_learns_that_it_was_taken_over(spark: SparkSession, done: Place) -> None:
    """Neither an epoch nor a failure of Spark, whose checkpoint is intact here, would make it notice."""
    running = SUMS.writer(spark, done, until_end=False).start()
    running.processAllAvailable()
    store = DirectoryStore(done.snapshots)
    successor = msgspec.structs.replace(newest_record(done), run="another run")
    assert store.put(store.slots()[-1] + 1, successor.encode())
    with pytest.raises(FencedError, match="Another driver has taken over query"):
        assert running.awaitTermination(PATIENCE)


def test_a_driver_that_was_taken_over_while_it_started_ends_with_that_error(
    spark: SparkSession, half_done: Place
) -> None:
    """Files that it has yet to read were removed by its successor: this is not corruption."""
    clock = StoppedClock()
    failures: list[BaseException] = []

    def start() -> None:
        try:
            SUMS.writer(spark, half_done).clock(clock).start().awaitTermination()
        except FencedError as error:
            failures.append(error)

    slow = threading.Thread(target=start)
    slow.start()
    assert clock.read.wait(PATIENCE)
    SUMS.run(spark, half_done)
    clock.go_on.set()
    slow.join(PATIENCE)
    assert [type(error) for error in failures] == [FencedError]
    check(half_done, SUMS, batches=WHOLE, closings=[WHOLE], swept=False)
    # And the orphans of the slow one are removed by the next.
    SUMS.run(spark, half_done)
    check(half_done, SUMS, batches=WHOLE, closings=[WHOLE])


def test_a_query_that_spark_stopped_closes_no_windows(spark: SparkSession, half_done: Place, finished: Place) -> None:
    """Its input is not at its end: rows still to be read would be late."""
    begun, stopped = threading.Event(), threading.Event()

    def hold(step: EpochPhase, epoch: int) -> None:
        if step is EpochPhase.CLEAN:
            begun.set()
            assert stopped.wait(PATIENCE)

    query = SUMS.writer(spark, half_done).onEpochPhase(hold).start()
    assert begun.wait(PATIENCE)
    (active,) = (each for each in spark.streams.active if each.id == query.id)
    stopper = threading.Thread(target=active.stop)
    stopper.start()
    while active.isActive:
        stopped.wait(0.02)
    stopped.set()
    stopper.join(PATIENCE)
    query.awaitTermination(PATIENCE)
    assert newest_record(half_done).kind is not EpochKind.CLOSING
    SUMS.run(spark, half_done)
    check(half_done, SUMS, batches=WHOLE, closings=[WHOLE])
    same_epochs(half_done, finished, SUMS)


# In CI with Kafka beside the files: `test_into_kafka.py`.
@pytest.mark.long
def test_of_drivers_that_start_at_once_one_survives(spark: SparkSession, half_done: Place, finished: Place) -> None:
    together = threading.Barrier(3)
    outcomes: list[str] = []

    def start() -> None:
        together.wait()
        try:
            SUMS.run(spark, half_done)
        except FencedError:
            outcomes.append("fenced")
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(outcomes) == ["done", "fenced", "fenced"]
    SUMS.run(spark, half_done)
    check(half_done, SUMS, batches=WHOLE, closings=[WHOLE])
    same_epochs(half_done, finished, SUMS)
