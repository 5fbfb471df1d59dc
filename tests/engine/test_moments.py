"""Random numbers and the current time in a running query: of each epoch its own, and the same when it is run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.testing import CollectingSink, StreamDriver
from tests.parameters import mostly_long

pytestmark = pytest.mark.spark

SCHEMA = "key long, ts timestamp"
ROWS = 40
SECOND = "1 second"


def tossed(rows: Any) -> Any:
    return rows.where(F.rand() < 0.5).groupBy(sj.window("ts", SECOND)).agg(F.collect_list("key").alias("keys"))


def salted(rows: Any) -> Any:
    salt = (F.rand() * 4).cast("int").alias("salt")
    return rows.groupBy(sj.window("ts", SECOND), salt).agg(F.collect_list("key").alias("keys"))


def several(rows: Any) -> list[Any]:
    """The batch is persisted, and so are the results."""
    marked = rows.withColumn("x", F.rand())
    firsts = marked.dropDuplicates(["key", "ts"])
    tossed_first = rows.where("rand() < 0.5").dropDuplicates(["key", "ts"]).select("key", F.expr("uuid()"))
    return [firsts.select("key", "x"), firsts.select("key", F.randn()), tossed_first]


AT_ONCE: dict[str, Callable[[Any], Any]] = {
    "rolling": lambda rows: rows.where("rand() < 0.5").groupBy("ts").agg(F.collect_list("key")),
    "several outputs": several,
}


def driven(spark: SparkSession, query: Callable[[Any], Any], **options: object) -> tuple[Any, ...]:
    """A driver, and its sinks."""
    driver = StreamDriver(spark, lambda rows: query(rows.withWatermark("ts", 0)), SCHEMA, **options)
    return driver, *driver.sinks


def feed(driver: StreamDriver, epoch: int) -> None:
    driver.process((key, f"1970-01-01 00:00:{epoch:02}") for key in range(ROWS))


def numbers(rows: Sequence[Row]) -> list[str]:
    """The rows, but for when they were."""
    return sorted(str({**row.asDict(), "window": None, "ts": None}) for row in rows)


@pytest.mark.parametrize("name", mostly_long({name: name for name in AT_ONCE}, ["several outputs"]))
def test_an_epoch_has_its_own_random_numbers_and_the_same_when_it_is_run_again(spark: SparkSession, name: str) -> None:
    driver, *sinks = driven(spark, AT_ONCE[name], outputMode="update" if name == "rolling" else "append")
    feed(driver, 1)
    with driver.crash(at=EpochPhase.PREPARE):
        feed(driver, 2)
    prepared = [numbers(next(iter(each.prepared.values()))) for each in sinks]
    driver.restart()
    driver.process()
    for each, first in zip(sinks, prepared, strict=True):
        assert numbers(each.committed[1]) != numbers(each.committed[2]) == first
        assert 0 < len(each.committed[2]) <= ROWS


def closing(rows: Any) -> list[Any]:
    windows, with_late_rows = tossed(rows), tossed(rows)
    return [windows, salted(rows), with_late_rows, with_late_rows.lateRows]


@pytest.mark.crash
@pytest.mark.interpreted
def test_no_window_repeats_the_random_numbers_of_the_one_before(spark: SparkSession) -> None:
    driver, *_ = driven(spark, closing)
    for epoch in range(1, 4):
        feed(driver, epoch)
    for sink in driver.sinks[:3]:
        assert isinstance(sink, CollectingSink)
        first, second = (numbers(sink.committed[epoch]) for epoch in (2, 3))
        assert first != second


def test_the_time_is_the_clocks_reading_at_the_beginning_of_the_epoch(spark: SparkSession) -> None:
    def query(rows: Any) -> Any:
        timed = rows.withColumn("before", F.current_timestamp()).dropDuplicates(["key", "ts"])
        return timed.select("before", F.now())

    driver, sink = driven(spark, query)
    for epoch in (1, 2):
        driver.advance("10 seconds")
        feed(driver, epoch)
        now = datetime.fromtimestamp(10 * epoch, timezone.utc)
        assert {tuple(each.astimezone(timezone.utc) for each in row) for row in sink.committed[epoch]} == {(now, now)}
