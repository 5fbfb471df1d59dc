"""Alignment of a topic's partitions, in sparkjet's engine: who waits, until when, and that all is read."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

import sparkjet as sj
from tests.sources.feed import options, send_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.query import StreamingQuery
    from tests.servers.kafka import KafkaServer

T0 = 1_700_000_400_000
"""A time at which a window begins, in milliseconds."""
MINUTE = 60_000
EACH = 60
"""Messages of a partition, one a minute."""
BEHIND = 360
"""By how many minutes the last partition is behind the others."""


@pytest.fixture
def skewed(kafka: KafkaServer) -> str:
    """A topic with a partition that is hours behind the two others."""
    topic = kafka.topic(partitions=3)
    for partition in range(3):
        first = 0 if partition == 2 else BEHIND
        send_at(kafka, topic, partition, [T0 + (first + minute) * MINUTE for minute in range(EACH)])
    return topic


def stream(spark: SparkSession, server: KafkaServer, topic: str, **given: str) -> DataFrame:
    sj.register_sources(spark)
    every = options(server, subscribe=topic, startingOffsets="earliest", **{"maxOffsetsPerTrigger": "30", **given})
    return spark.readStream.format("sparkjet-kafka").options(**every).load()


def started(df: DataFrame, tmp_path: Path, fails_in: int = 0) -> StreamingQuery:
    """A query that ends by itself, or fails in an epoch before it is decided."""

    def listener(phase: sj.EpochPhase, epoch: int) -> None:
        if epoch == fails_in and phase is sj.EpochPhase.PREPARE:
            raise ZeroDivisionError

    counts = sj.stream(df).withWatermark("timestamp", "0 seconds").groupBy(sj.window("timestamp", "10 minutes")).count()
    writer = counts.writeStream.format("files").option("path", str(tmp_path / "out")).option("fileFormat", "json")
    writer = writer.option("checkpointLocation", str(tmp_path / "home"))
    # With overlap, the next batch is planned before its predecessor is decided.
    writer = writer.option("overlapEpochs", "true").option("closeWindowsAtEnd", str(not fails_in).lower())
    return writer.onEpochPhase(listener).trigger(availableNow=True).start()


def windows(tmp_path: Path) -> dict[int, int]:
    rows = sj.read_files(str(tmp_path / "out")).selectExpr("unix_millis(window.start) AS s", "count").collect()
    found = Counter({(row["s"] - T0) // (10 * MINUTE): row["count"] for row in rows})
    assert len(rows) == len(found)
    return dict(found)


def progress_of(query: StreamingQuery) -> list[dict[str, Any]]:
    return [each for each in query.recentProgress if each["batchId"] is not None]


@pytest.mark.logs_errors
def test_it_waits_for_the_slow_one_and_all_is_read_across_a_crash(
    spark: SparkSession, kafka: KafkaServer, skewed: str, tmp_path: Path
) -> None:
    df = stream(spark, kafka, skewed, maxWatermarkDrift="5 minutes")
    query = started(df, tmp_path, fails_in=2)
    with pytest.raises(ZeroDivisionError):
        query.awaitTermination(120)
    found = progress_of(query)
    query = started(df, tmp_path)
    assert query.awaitTermination(120)
    found += progress_of(query)
    slow, ahead = f"{skewed}/2", [f"{skewed}/0", f"{skewed}/1"]
    # In the first batch nothing is known. From the second on, the others wait, but for what the slow one leaves them.
    for each in found[1:]:
        ends = json.loads(each.sources[0].endOffset)["offsets"][skewed]
        is_held = [name for name in ahead if each["substreams"][name]["heldBack"] is not None]
        if ends["2"] < EACH:
            assert is_held == ahead
            assert (ends["0"], ends["1"]) == (10, 10)
            by = each["substreams"][ahead[0]]
            assert (by["heldBy"], by["heldBack"] > 5 * 60_000_000) == (slow, True)
        else:
            assert is_held == []
    assert len(found) == 6
    assert [each.sources[0].startOffset for each in found[1:]] == [each.sources[0].endOffset for each in found[:-1]]
    assert ends == {"0": EACH, "1": EACH, "2": EACH}
    assert query.lastProgress is not None
    assert query.lastProgress["lateRows"]["total"] == 0
    # As without alignment: ten messages of the slow one, or ten of each of the others, in each window.
    assert windows(tmp_path) == {**dict.fromkeys(range(6), 10), **dict.fromkeys(range(36, 42), 20)}


@pytest.mark.long
@pytest.mark.logs_errors
def test_the_option_may_be_added_changed_and_left_out_between_runs(
    spark: SparkSession, kafka: KafkaServer, skewed: str, tmp_path: Path
) -> None:
    runs: list[dict[str, str]] = [
        {},
        {"maxWatermarkDrift": "5 minutes"},
        {"maxWatermarkDrift": "3 hours", "maxOffsetsPerTrigger": "7"},
        {"maxOffsetsPerTrigger": "11"},
        {"maxWatermarkDrift": "1 second", "maxOffsetsPerTrigger": "20"},
    ]
    done, held = 0, []
    for number, given in enumerate(runs):
        is_last = number == len(runs) - 1
        query = started(stream(spark, kafka, skewed, **given), tmp_path, 0 if is_last else done + 3)
        with nullcontext() if is_last else pytest.raises(ZeroDivisionError):
            query.awaitTermination(120)
        found = progress_of(query)
        done = found[-1]["epoch"]["number"]
        held.append(any(each["heldBy"] for one in found for each in one["substreams"].values()))
        assert not any(one["lateRows"]["total"] for one in found)
    assert held == [False, True, False, False, False]
    assert windows(tmp_path) == {**dict.fromkeys(range(6), 10), **dict.fromkeys(range(36, 42), 20)}


@pytest.mark.crash
@pytest.mark.interpreted
def test_what_cannot_be_aligned_is_refused_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    reader = reader.option("subscribe", "a").option("maxWatermarkDrift", "5 minutes")
    with pytest.raises(AnalysisException, match=r"maxWatermarkDrift needs maxOffsetsPerTrigger"):
        reader.load()
    df = reader.option("maxOffsetsPerTrigger", "9").load()

    def refused(stream: sj.Stream, match: str) -> None:
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "home"))
        with pytest.raises(sj.AnalysisError, match=rf"maxWatermarkDrift.*{match}"):
            writer.start()

    def timed(rows: DataFrame, policy: Any = "0 seconds", **more: str) -> Any:
        return (
            sj.stream(rows).withWatermark("timestamp", policy, **more).groupBy(sj.window("timestamp", "1 hour")).count()
        )

    refused(sj.stream(df), r"each source of the query needs one withWatermark")
    refused(timed(df.select("value", "timestamp")), r"not the partitions of sparkjet-kafka. Keep its columns topic and")
    refused(timed(df.union(df)), r"withWatermark\(…\) covers 2 sources, .* on the stream of each, and union those")
    refused(timed(df, by="key"), r"not the partitions of sparkjet-kafka")
    refused(timed(df, sj.limiting_real_time_lag("1 minute")), r"the clock moves the watermarks")
    rate = spark.readStream.format("rate").option("maxwatermarkdrift", "1m").load()
    refused(timed(rate), r"='1m': the source 'rate' does not know it.*sparkjet-grid-journal, sparkjet-kafka")
    (tmp_path / "in").mkdir()
    files = spark.readStream.schema("timestamp timestamp").option("maxWatermarkDrift", "1m").json(str(tmp_path / "in"))
    refused(timed(files), r"the source 'json' does not know it")
    refused(timed(df).join(timed(rate), "window"), "the source 'rate' does not know it")
    assert not (tmp_path / "home").exists()
