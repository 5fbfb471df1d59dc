"""Output modes that do not go with the rows, the sink or an option are refused at the start, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from tests.feed import SCHEMA as FEED
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.stream import Stream

SCHEMA = "ts timestamp, k string, v long"


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(tmp_path))


def minutes(stream: Stream) -> Any:
    return stream.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute")).count()


def sessions(stream: Stream) -> Any:
    return stream.withWatermark("ts", "1 minute").groupBy(F.session_window("ts", "1 minute")).count()


def ranked(stream: Stream, window: Any) -> Any:
    counts = stream.withWatermark("ts", "1 minute").groupBy(window, "k").count()
    return counts.withColumn("place", F.rank().over(Window.partitionBy(counts.columns[0]).orderBy("count")))


def keys(stream: Stream) -> Any:
    return stream.groupBy("k").count()


def unmarked(stream: Stream) -> Any:
    return stream.groupBy(F.window("ts", "1 minute")).count()


def to(result: Any, mode: str, sink: str = "noop", **options: object) -> None:
    result.writeStream.format(sink).outputMode(mode).options(**options).trigger(availableNow=True).start()


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (lambda s: to(keys(s), "append"), r'"append" is for rows that are final.*outputMode\("update"\).*F.window'),
        (lambda s: to(unmarked(s), "append"), r'"append" is for rows that are final.*withWatermark'),
        (lambda s: to(keys(s), "new"), 'there is no mode "new"'),
        (lambda s: to(s, "complete"), '"complete" is for the results of an aggregation'),
        (lambda s: to(sessions(s), "complete"), "fixed length only, not with sessions"),
        (
            lambda s: sj.start(
                minutes(s).writeStream.format("noop"),
                lateRows=minutes(s).lateRows.writeStream.format("noop").outputMode("complete"),
            ),
            "late rows are never early",
        ),
        (lambda s: to(minutes(s).orderBy("count"), "append"), r'orderBy, limit .*outputMode\("complete"\)'),
        (lambda s: to(keys(s).limit(3), "update"), r'orderBy, limit .*outputMode\("complete"\)'),
        (lambda s: to(keys(s).groupBy("count").count(), "update"), r'groupBy .*outputMode\("complete"\)'),
        (lambda s: to(keys(s), "update", "parquet", path="/out"), 'files in mode "append" only.*keyColumns'),
        (lambda s: to(minutes(s), "complete", "csv", path="/out"), 'files in mode "append" only'),
        (lambda s: keys(s).writeStream.toTable("t", outputMode="update"), 'files in mode "append" only'),
        (lambda s: to(keys(s), "update", "delta", path="/out"), r'without keys a table.*\("mode", "upsert"\)'),
        (lambda s: to(minutes(s), "update", "iceberg", path="/out"), r'a window again.*\("mode", "upsert"\)'),
        (lambda s: to(keys(s), "update", earlyResultsPeriod="1 second"), "earlyResultsPeriod: .* never final"),
        (lambda s: to(keys(s), "update", isEarly=True), "isEarly: .* never final"),
        (lambda s: to(minutes(s), "complete", lateRowsPath="/late"), "lateRowsPath: .* never final"),
        (
            lambda s: to(keys(s), "complete", "postgres", dsn="host=nowhere", dbtable="t", checkpointLocation="/home"),
            "add all results once more in each epoch.*keyColumns",
        ),
        (lambda s: minutes(s).limit(3).groupBy(F.window("window", "1 hour")), "Leave them out before groupBy"),
        (lambda s: to(minutes(s).groupBy("count").count(), "append"), r'groupBy .*outputMode\("complete"\)'),
        (lambda s: sessions(s).groupBy("count"), "aggregated again by a window"),
        (lambda s: keys(s).groupBy("count").pivot("k"), r"give the values of 'k', e.g. pivot\("),
        (
            lambda s: to(minutes(s), "update", "parquet", path="/out"),
            r'emits a window again.*outputMode\("append"\).*option\("isEarly", True\)',
        ),
        (
            lambda s: to(ranked(s, F.window("ts", "1 minute")), "update"),
            r'"update" emits the results that have changed, and a window function.*outputMode\("append"\)',
        ),
        (
            lambda s: to(ranked(s.withColumn("w", F.window("ts", "1 minute")), "w"), "update"),
            r'"update" emits the results that have changed, and a window function.*outputMode\("append"\)',
        ),
        (lambda s: keys(s).groupBy("count").writeStream, "Call agg"),
        (lambda s: keys(s).groupBy("count").agg(J.top_n("k", 2)), "those of pyspark.sql.functions"),
        (lambda s: keys(s).lateRows, "No row is late"),
        (lambda s: keys(s).withWatermark("ts", "1 minute"), "Call it before groupBy"),
        (lambda s: s.orderBy("v"), r'outputMode\("complete"\)'),
    ],
)
def test_what_a_mode_cannot_do_is_refused(source: DataFrame, start: Callable[[Stream], None], named: str) -> None:
    with pytest.raises((sj.AnalysisError, AttributeError), match=named):
        start(sj.stream(source))


def test_every_other_mode_starts(source: DataFrame) -> None:
    stream = sj.stream(source)
    for result, modes in [(keys(stream), ["update", "complete"]), (unmarked(stream), ["Update", "COMPLETE"])]:
        for mode in modes:
            to(result, mode)
    to(minutes(stream), "complete")
    to(stream, "update")
    for mode in ("append", "complete"):
        to(ranked(stream, F.window("ts", "1 minute")), mode)


def test_what_is_said_of_windows_in_update_mode_into_files_works(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")

    def run(name: str, mode: str, sink: str = "parquet", **options: object) -> list[int]:
        stream = sj.stream(spark.readStream.schema(FEED).json(str(feed.directory))).withWatermark("ts", "0 seconds")
        counts = stream.groupBy(F.window("ts", "10 seconds")).count()
        writer = counts.writeStream.format(sink).outputMode(mode).options(**options).trigger(availableNow=True)
        writer = writer.option("path", tmp_path / f"{name}-out") if sink == "parquet" else writer
        writer.option("checkpointLocation", tmp_path / name).option("statePartitions", 1).start().awaitTermination()
        if sink != "parquet":
            return []
        found = sj.read_files(str(tmp_path / f"{name}-out"))
        return sorted(
            row["count"] for row in (found.where("NOT is_early") if "isEarly" in options else found).collect()
        )

    feed.add(*rows([1, 2, 11], v=1))
    # A home as sparkjet left it that wrote files in this mode.
    run("home", "update", "noop")
    feed.add(*rows([12, 13, 40], v=1))
    with pytest.raises(sj.AnalysisError, match=r'Use outputMode\("append"\), with which the query goes on'):
        run("home", "update")
    assert run("home", "append", closeWindowsAtEnd=True) == [1, 3]
    assert run("other", "update", isEarly=True, closeWindowsAtEnd=True) == [1, 2, 3]
