"""Sessions whose gap is an expression of the row: the rows of Spark, and what is no gap."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import AnalysisError
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import LateStream, WindowedStream

SCHEMA = "ts timestamp, user string, device string, gap string, n int"
START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def click(seconds: float, user: str, device: str, gap: str | None = None) -> tuple[object, ...]:
    return START + timedelta(seconds=seconds), user, device, gap, 1


def by_device() -> Column:
    return F.when(F.col("device") == "phone", "5 seconds").when(F.col("device") == "desk", "20 seconds")


def sessions(gap: Column, watermark: str = "10 seconds") -> Callable[[sj.Stream], WindowedStream]:
    def query(clicks: sj.Stream) -> WindowedStream:
        timed = clicks.withWatermark("ts", watermark)
        return timed.groupBy(sj.session_window("ts", gap), "user").agg(F.count("*").alias("clicks"))

    return query


def rows_of(found: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in found), key=repr)


@pytest.mark.parametrize(
    "gap",
    [
        # In CI, the fuzzer has gaps of rows, and what has none is below.
        pytest.param(by_device, id="text of a case", marks=pytest.mark.long),
        pytest.param(lambda: F.col("gap"), id="text of a column", marks=pytest.mark.long),
        pytest.param(lambda: F.make_dt_interval(secs=F.col("n") * 7), id="interval", marks=pytest.mark.crash),
    ],
)
def test_sessions_are_those_of_spark(spark: SparkSession, gap: Callable[[], Column]) -> None:
    chosen = random.Random(3)
    texts = ["4 seconds", "1 minute", "0 seconds", "-9 seconds", "soon", None, "interval 11.5 seconds"]
    # To the microsecond: of sessions that touch Spark would make one.
    clicks = [
        click(chosen.uniform(0, 400), chosen.choice("ab"), chosen.choice(["phone", "desk", "?"]), chosen.choice(texts))
        for _ in range(120)
    ]
    driver = StreamDriver(spark, sessions(gap(), watermark="1 hour"), SCHEMA)
    for first in range(0, len(clicks), 40):
        driver.process(clicks[first : first + 40])
    driver.stop()
    driver.restart()
    driver.close_windows()
    # Spark takes no intervals of days to seconds for a gap.
    sparks = F.make_interval(secs=F.col("n") * 7) if "make_dt_interval" in str(gap()) else gap()
    batch = spark.createDataFrame(clicks, SCHEMA).groupBy(F.session_window("ts", sparks), "user")
    expected = rows_of(batch.agg(F.count("*").alias("clicks")).collect())
    assert len(expected) > 10
    assert rows_of(driver.results()) == expected


def test_a_row_without_a_gap_is_in_no_session_and_not_late_but_advances_the_watermark(spark: SparkSession) -> None:
    def query(clicks: sj.Stream) -> list[WindowedStream | LateStream]:
        result = sessions(by_device())(clicks)
        return [result, result.lateRows]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([click(0, "a", "phone"), click(3, "a", "desk"), (None, "a", "?", None, 1)])
    assert driver.results() == []
    driver.process([click(40, "b", "?")])
    assert driver.watermark is not None
    assert driver.watermark.astimezone(UTC) == at(30)
    (row,) = driver.results()
    assert (row.user, row.clicks, row.session_window.end.astimezone(UTC)) == ("a", 2, at(23))
    driver.process([click(1, "a", "?"), click(2, "a", "phone")])
    driver.close_windows()
    assert len(driver.results()) == 1
    assert driver.late_counts == {"all": 1}
    assert [(row.device, row._reason) for row in driver.late_rows()] == [("?", "null_timestamp"), ("phone", "late")]
    assert driver.late_rows()[0].asDict().keys() == {
        *("ts", "user", "device", "gap", "n"),
        *("_substream", "_watermark", "_reason"),
    }


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (
            lambda: F.col("n"),
            r"the gap n is of type int, not an interval or a text such as '5 minutes'.*make_dt_interval",
        ),
        (lambda: F.col("ts"), "the gap ts is of type timestamp"),
        (lambda: F.col("none"), "none"),
        (lambda: F.when(F.rand() > 0.5, "5 seconds"), r"rand.*gives another value each time.*withColumn before"),
        (lambda: F.udf(lambda device: f"{len(device)} seconds")("device"), "calls a Python function"),
    ],
    ids=["number", "time", "missing", "random", "Python"],
)
def test_a_malformed_gap_is_refused_when_the_query_is_built(
    spark: SparkSession, gap: Callable[[], Column], message: str
) -> None:
    with pytest.raises((AnalysisError, AnalysisException), match=message):
        StreamDriver(spark, sessions(gap()), SCHEMA)


def test_another_gap_needs_another_home(spark: SparkSession, tmp_path: Path) -> None:
    driver = StreamDriver(spark, sessions(by_device()), SCHEMA, directory=tmp_path)
    driver.process([click(0, "a", "phone")])
    driver.stop()
    with pytest.raises(sj.SparkjetError, match=r"session window.*CASE WHEN.*desk"):
        StreamDriver(spark, sessions(F.col("gap")), SCHEMA, directory=tmp_path)
