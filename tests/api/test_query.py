"""Whole queries: what a user sees of windows, keys, late rows, progress and the handle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import sparkjet as sj
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.stream import Stream
    from sparkjet.api.writer import StreamWriter


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path / "in")


def watermarked(spark: SparkSession, feed: Feed, **settings: Any) -> Stream:
    return sj.stream(feed.read(spark)).withWatermark("ts", "10 seconds", **settings)


def files(writer: StreamWriter, home: Path) -> StreamWriter:
    return (
        writer.format("files")
        .option("path", home / "out")
        .option("checkpointLocation", home / "ck")
        .option("statePartitions", 2)
        .trigger(availableNow=True)
    )


def test_keys_nulls_late_rows_and_progress(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(
        *rows([0, 5, 5], p="a", k="x", j=1, v=1), *rows([2], p="b", k=None, j=None, v=10), *rows([None], p="b", v=7)
    )
    feed.add(*rows([100], p="a", k="x", j=1, v=2), *rows([90], p="b", k="y", j=2, v=3))
    feed.add(*rows([3, 4], p="a", k="x", j=1, v=1000), *rows([95], p="b", k="x", j=1, v=4), *rows([None, None], p="c"))
    stream = watermarked(spark, feed, by="p", substreams=["a", "b"])
    result = stream.groupBy("k", sj.window("ts", "20 seconds", "10 seconds"), F.col("j").alias("jay")).agg(
        F.count("*").alias("n"), F.sum("v").alias("total")
    )
    writer = files(result.writeStream, tmp_path).option("lateRowsPath", tmp_path / "late")
    query = writer.option("closeWindowsAtEnd", True).queryName("keys").start()
    query.awaitTermination()
    assert result.columns == ["k", "window", "jay", "n", "total"]
    start = F.unix_seconds("window.start") - START
    found = sj.read_files(str(tmp_path / "out")).select(
        start, F.unix_seconds("window.end") - START, "k", "jay", "n", "total"
    )
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(
        [
            (-10, 10, "x", 1, 3, 3), (0, 20, "x", 1, 3, 3), (-10, 10, None, None, 1, 10), (0, 20, None, None, 1, 10),
            (90, 110, "x", 1, 2, 6), (100, 120, "x", 1, 1, 2), (80, 100, "x", 1, 1, 4),
            (80, 100, "y", 2, 1, 3), (90, 110, "y", 2, 1, 3),
        ],
        key=repr,
    )  # fmt: skip
    late = spark.read.parquet(str(tmp_path / "late"))
    judged = F.unix_seconds("_watermark") - START
    assert sorted(map(tuple, late.select("id", "_substream", judged, "_reason").collect())) == [
        (4, "b", None, "null_timestamp"),
        (7, "a", 80, "late"),
        (8, "a", 80, "late"),
        (10, "c", 80, "null_timestamp"),
        (11, "c", 80, "null_timestamp"),
    ]
    progress = query.lastProgress
    assert progress is not None
    assert progress["lateRows"]["total"] == 2
    assert progress["nullTimestamps"]["total"] == 3
    assert progress["substreams"]["a"]["lateRows"] == 2
    assert progress["substreams"]["c"] == {
        "watermark": None, "idle": False, "holdsWatermark": False, "caughtUp": None, "lateRows": 0, "nullTimestamps": 2,
        "heldBack": None, "heldBy": None,
    }  # fmt: skip
    assert progress["snapshot"] == {"deltas": 0, "entries": 0, "partitions": 2}
    third = query.recentProgress[2]
    assert third["numInputRows"] > 0
    assert third["batchId"] == 2
    assert third["watermark"] == (START + 80) * 1_000_000
    assert set(third["epoch"]["durationMs"]) >= {"aggregate", "save", "prepare", "decide", "commit"}
    assert query.guarantees == {"results": "exactly-once", "late": "exactly-once"}
    assert not query.isActive
    assert query.exception() is None


# In CI, the cases of `conformance/test_spark.py` have negative times, and the fuzzer filters and shapes results.
@pytest.mark.long
def test_no_keys_negative_times_filters_and_shaped_results(spark: SparkSession, feed: Feed) -> None:
    feed.add(*rows([-START - 5, -START - 1, -START + 3], v=4), *rows([-START + 4], v=-1))
    feed.add(*rows([-START + 50], v=-1))
    stream = watermarked(spark, feed).where("v > 0").withColumn("double", F.col("v") * 2).select("ts", "double")
    result = stream.groupBy(sj.window("ts", "10 seconds", startTime="5 seconds")).agg(F.sum("double").alias("s"))
    shaped = result.where("s > 8").select(F.unix_seconds("window.start").alias("start"), "s")
    writer = shaped.writeStream.format("memory").queryName("shaped").trigger(availableNow=True)
    writer.start().awaitTermination()
    assert [tuple(row) for row in spark.table("shaped").collect()] == [(-5, 24)]


def test_start_takes_what_sparks_start_takes(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(*rows([1, 2, 15], k="a"))
    counts = watermarked(spark, feed).groupBy(sj.window("ts", "10 seconds"), "k").count()
    query = counts.writeStream.trigger(availableNow=True).start(
        str(tmp_path / "out"),
        format="files",
        fileFormat="json",
        outputMode="append",
        partitionBy=["k"],
        queryName="like_spark",
        checkpointLocation=tmp_path / "checkpoint",
        closeWindowsAtEnd=True,
    )
    query.awaitTermination()
    assert query.name == "like_spark"
    assert {path.parent.name for path in (tmp_path / "out").glob("k=*/*.json")} == {"k=a"}
    assert [row["count"] for row in spark.read.json(str(tmp_path / "out")).sort("count").collect()] == [1, 2]
    with pytest.raises(AttributeError, match=r"StreamingQuery has no 'awaitTermintion'; did you mean"):
        query.awaitTermintion  # noqa: B018 - what a user misspells
    wait: Any = query.awaitTermination
    for wrong in ("1", -1, float("inf")):
        with pytest.raises(sj.AnalysisError, match=f"awaitTermination: timeout={wrong!r} is not a number of seconds"):
            wait(wrong)


def test_a_path_alone_means_files_of_sparks_default_format(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(*rows([1], k="a"))
    writer = sj.stream(feed.read(spark)).writeStream.option("checkpointLocation", tmp_path / "ck")
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 1


def test_user_columns_may_have_the_engines_names(spark: SparkSession, feed: Feed) -> None:
    feed.add(*rows([1], k="x", v=3))
    stream = sj.stream(feed.read(spark).withColumnsRenamed({"k": "frame", "v": "key0"})).withWatermark(
        "ts", "0 seconds"
    )
    result = stream.groupBy("frame", sj.window("ts", "1 second").alias("end"), "key0").agg(
        F.count("*").alias("result0")
    )
    writer = result.writeStream.format("memory").queryName("names").trigger(availableNow=True)
    writer.option("closeWindowsAtEnd", True).start().awaitTermination()
    assert [(r["frame"], r["key0"], r["result0"]) for r in spark.table("names").collect()] == [("x", 3, 1)]


@pytest.mark.parametrize("guarantee", [pytest.param("at-least-once", marks=pytest.mark.long), "none"])
def test_weaker_guarantees_still_deliver_without_failures(
    spark: SparkSession, feed: Feed, tmp_path: Path, guarantee: str
) -> None:
    feed.add(*rows([1, 2], v=1))
    feed.add(*rows([60], v=1))
    result = watermarked(spark, feed).groupBy(sj.window("ts", "10 seconds")).count()
    query = files(result.writeStream, tmp_path).option("processingGuarantee", guarantee).start()
    query.awaitTermination()
    assert query.guarantees == {"results": guarantee}
    assert [row["count"] for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [2]


def test_stop_waits_for_the_epoch_and_a_new_run_goes_on(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    for batch in range(4):
        feed.add(*rows([batch * 20, batch * 20 + 1], v=1))
    reached, proceed = threading.Event(), threading.Event()

    def pause(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.PREPARE and epoch == 2:
            reached.set()
            proceed.wait(60)

    result = watermarked(spark, feed).groupBy(sj.window("ts", "10 seconds")).count()
    # Else the batch that is read meanwhile would still be recorded.
    query = files(result.writeStream, tmp_path).option("overlapEpochs", False).onEpochPhase(pause).start()
    assert reached.wait(60)
    with pytest.raises(TimeoutError, match="the last one recorded is 1"):
        query.stop(timeout=0.1)
    proceed.set()
    query.stop()
    query.stop()
    assert query.exception() is None
    assert query.awaitTermination(1) is True
    first = query.recentProgress[-1]
    assert first["epoch"]["number"] == 2
    again = files(result.writeStream, tmp_path).option("closeWindowsAtEnd", True).start()
    again.awaitTermination()
    assert (again.id, again.runId != query.runId) == (query.id, True)
    assert sorted(row["count"] for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [2, 2, 2, 2]


def test_the_settings_of_the_users_session_stay_as_they_are(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(*rows([0], k="x"))
    before = dict(spark.conf.getAll)
    result = watermarked(spark, feed).groupBy(sj.window("ts", "20 seconds"), "k").count()
    files(result.writeStream, tmp_path).start().awaitTermination()
    assert dict(spark.conf.getAll) == before


def test_the_users_local_files_are_still_checked_by_their_checksums(spark: SparkSession, feed: Feed) -> None:
    feed.add(*rows([0], k="x"))
    spark.read.text(f"{feed.directory}").coalesce(1).write.mode("append").text(f"{feed.directory}")
    written = next(feed.directory.glob("part-*"))
    assert written.with_name(f".{written.name}.crc").exists()
    written.write_text(written.read_text().replace("x", "y"))
    result = watermarked(spark, feed).groupBy(sj.window("ts", "20 seconds"), "k").count()
    query = result.writeStream.format("console").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="ChecksumException") as caught:
        query.awaitTermination()
    assert isinstance(caught.value.__cause__, Py4JJavaError)
    assert query.exception() is caught.value


@pytest.mark.crash
def test_an_error_in_the_users_function_ends_the_query_with_it(spark: SparkSession, feed: Feed) -> None:
    feed.add(*rows([1], v=1))
    feed.add(*rows([60], v=1))

    def fail(_rows: object, _epoch: int) -> None:
        raise OSError("no room")

    result = watermarked(spark, feed).groupBy(sj.window("ts", "10 seconds")).count()
    query = result.writeStream.foreachBatch(fail).trigger(availableNow=True).start()
    with pytest.raises(sj.UnsettledError, match=r"no room.*Nothing is lost"):
        query.awaitTermination()
    assert isinstance(query.exception(), sj.UnsettledError)
    assert not query.isActive


def test_a_running_query_processes_what_comes(spark: SparkSession, feed: Feed) -> None:
    feed.add(*rows([1], v=1))
    result = watermarked(spark, feed).groupBy(sj.window("ts", "10 seconds")).count()
    query = result.writeStream.format("memory").queryName("live").trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        assert spark.table("live").count() == 0
        feed.add(*rows([60], v=1))
        query.processAllAvailable()
        assert spark.table("live").count() == 1
        assert query.isActive
        assert query.name == "live"
        assert query.status["isDataAvailable"] in {True, False}
        second = sj.stream(feed.read(spark)).writeStream.format("memory").queryName("live")
        with pytest.raises(sj.AnalysisError, match='queryName: a query named "live" is running in this session'):
            second.start()
        assert spark.table("live").columns == ["window", "count"]
    finally:
        query.stop()


def test_a_notebook_shows_small_tables(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    feed.add(*rows([1, 12], k="<a>", v=1))
    stream = sj.stream(feed.read(spark)).select(F.col("v").alias("<v>"))
    assert "<tr><td>&lt;v&gt;</td><td>bigint</td></tr>" in stream._repr_html_()
    result = watermarked(spark, feed, by="k").groupBy(sj.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
    query = result.writeStream.format("noop").queryName("<q>").start()
    query.processAllAvailable()
    html = query._repr_html_()
    query.stop()
    assert "<b>&lt;q&gt;: " in html
    assert "<tr><td>state</td><td>running</td></tr>" in html
    assert "<tr><td>rows in, this run</td>" in html
    assert "is behind</td>" in html
    assert "<tr><td>state</td><td>ended</td></tr>" in query._repr_html_()
