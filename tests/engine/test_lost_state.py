"""Cached state that is lost with an executor: every operator is restored from the record, and loses nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.testing import CollectingSink, StreamDriver
from tests.crash.functions import COUNT, VISIT, Buckets, visited
from tests.parameters import mostly_crash
from tests.persisted import lose_partitions, persisted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long, sub string, key string, ts timestamp"
OTHERS = "other long, okey string, at timestamp"
LOST = [(EpochPhase.BEGIN, 3), (EpochPhase.ADVANCE, 4), (EpochPhase.ADVANCE, 5)]
"""Before the state is read; when it has moved but is not yet stored; and while the input ends."""

READ_AGAIN = re.compile(r"(\d+) of (\d+) partitions of the state were read again")

Row = tuple[Any, ...]


def at(second: int) -> str:
    return f"2026-01-01 12:{second // 60:02}:{second % 60:02}"


def batch(number: int) -> tuple[list[Row], list[Row]]:
    """Rows of two inputs: some keys come in every epoch, some once; ``b`` is ten seconds behind ``a``."""
    keys = ["every", "every", f"only{number}", "odd" if number % 2 else "even"]
    rows = [
        (10 * number + place, sub, key, at(20 * number + 5 * place + (10 if sub == "a" else 0)))
        for place, key in enumerate(keys)
        for sub in "ab"
    ]
    others = [(100 + 10 * number + place, key, at(20 * number + 5 * place + 2)) for place, key in enumerate(keys)]
    return rows, others


def timed(rows: sj.Stream) -> sj.Stream:
    return rows.withWatermark("ts", "5 seconds", by="sub", substreams=["a", "b"]).alias("rows")


def with_ms(rows: sj.Stream) -> sj.Stream:
    return timed(rows).withColumn("ms", F.unix_millis("ts"))


def counted(rows: sj.Stream, time: str, key: str) -> Any:
    return rows.groupBy(sj.window(time, "20 seconds", "10 seconds"), F.col(key).alias("key")).count()


def others_of(others: sj.Stream) -> sj.Stream:
    return others.withWatermark("at", "15 seconds").alias("others")


def with_table(rows: sj.Stream) -> Any:
    names = rows.sparkSession.createDataFrame([("every", "x"), ("every", "y"), ("odd", "z")], "key string, name string")
    return counted(timed(rows).join(sj.read_once(names), "key", "left"), "ts", "name")


def near(rows: sj.Stream, others: sj.Stream) -> sj.Stream:
    """An interval join."""
    within = "key = okey AND at >= ts - INTERVAL 8 SECONDS AND at <= ts + INTERVAL 15 SECONDS"
    return rows.join(others, F.expr(within), "full_outer")


def together(rows: sj.Stream, others: sj.Stream) -> list[Any]:
    """Windows, keys and both sides of a join in one query."""
    rows = timed(rows)
    return [
        rows.groupBy(sj.session_window("ts", "4 seconds"), "key").count(),
        rows.dropDuplicatesWithinWatermark(["sub", "key"]),
        near(rows, others_of(others)),
    ]


ALONE: dict[str, tuple[int, Callable[..., Any]]] = {
    "windows": (1, lambda rows: counted(timed(rows), "ts", "key")),
    "sessions": (1, lambda rows: timed(rows).groupBy(sj.session_window("ts", "4 seconds"), "key").count()),
    "rolling": (1, lambda rows: rows.groupBy("key").agg(F.count("*").alias("n"), F.max("id").alias("last"))),
    "duplicates": (1, lambda rows: timed(rows).dropDuplicatesWithinWatermark(["sub", "key"])),
    "function": (
        1,
        lambda rows: (
            with_ms(rows)
            .groupBy("key")
            .applyInPandasWithState(
                visited, VISIT, "rows long, last long, ids long", "append", GroupStateTimeout.EventTimeTimeout
            )
        ),
    ),
    "processor": (
        1,
        lambda rows: (
            with_ms(rows).groupBy("sub", "key").transformWithStateInPandas(Buckets(), COUNT, "append", "EventTime")
        ),
    ),
    "window join": (
        2,
        lambda rows, others: counted(timed(rows), "ts", "key").join(
            counted(others_of(others), "at", "okey").withColumnRenamed("count", "others"), ["window", "key"], "outer"
        ),
    ),
    "interval join": (2, lambda rows, others: near(timed(rows), others_of(others))),
    "static join": (1, with_table),
}


QUERIES = {**ALONE, "together": (2, together)}
# The others keep their state in the same stores.
OFTEN = [("rolling", True)]
"""The queries of `make test-crash`, and whether only half of the state is lost."""


def lose(spark: SparkSession, rdds: set[int], *, partly: bool) -> None:
    """Remove their blocks and say nothing: as with the loss of an executor, Spark notices when it reads them.

    Args:
        spark: The session.
        rdds: Their ids.
        partly: Whether the second partition of each stays.
    """
    context = spark.sparkContext._jsc.sc()
    for rdd in rdds:
        if partly:
            lose_partitions(spark, rdd, [0])
            continue
        # Not RDD.unpersist: that would tell what is computed from it as well.
        context.unpersistRDD(rdd, True)


def run(
    spark: SparkSession, name: str, losses: list[tuple[EpochPhase, int]], *, partly: bool = False
) -> dict[int, list[str]]:
    """Rows by epoch; at each of the losses everything is lost that the query has in memory, or half of it."""
    foreign = persisted(spark)
    inputs, query = QUERIES[name]

    def strike(phase: EpochPhase, epoch: int) -> None:
        if losses and (phase, epoch) == losses[0]:
            losses.pop(0)
            lose(spark, persisted(spark) - foreign, partly=partly)

    mode = "update" if name == "rolling" else "append"
    schemas = [SCHEMA, OTHERS][:inputs]
    driver = StreamDriver(spark, query, schemas, outputMode=mode, onEpochPhase=strike)
    for number in range(4):
        driver.process(*batch(number)[:inputs])
    driver.close_windows()
    return by_epoch(driver.sinks)


def by_epoch(sinks: Iterable[Any]) -> dict[int, list[str]]:
    """The rows of all outputs, each with the number of its output."""
    found: dict[int, list[str]] = {}
    for number, sink in enumerate(sinks):
        assert isinstance(sink, CollectingSink)
        for epoch, rows in sink.committed.items():
            found.setdefault(epoch, []).extend(f"{number}: {row}" for row in rows)
    return {epoch: sorted(rows) for epoch, rows in found.items()}


@pytest.mark.parametrize(("name", "partly"), mostly_crash(product(QUERIES, [False, True]), quick=(), crash=OFTEN))
def test_state_that_is_lost_with_an_executor_is_restored(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, name: str, partly: bool
) -> None:
    due = [each for each in LOST if each[1] < 5 or name != "rolling"]
    with caplog.at_level(logging.WARNING, "sparkjet"):
        found = run(spark, name, due, partly=partly)
    assert due == []
    noticed = [each.partition(":")[0] for each in caplog.messages if "state was lost with an executor" in each]
    # What the last epoch emits may come from shuffle files, which are still there, and need nothing that was lost.
    assert noticed[:2] == ["epoch 3", "epoch 4"]
    again = [each.groups() for each in map(READ_AGAIN.search, caplog.messages) if each is not None]
    assert len(again) == len(noticed)
    # Of each segment one partition of two.
    assert all(int(read) * (1 + partly) == int(count) for read, count in again)
    assert found == run(spark, name, [])
    assert len(found) > 2
