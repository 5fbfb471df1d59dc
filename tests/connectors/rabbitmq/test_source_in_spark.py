"""The RabbitMQ source in sparkjet's engine: runs, restarts, substreams, and what is refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.connectors.rabbitmq.messages import ids, ready, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.rabbitmq import RabbitServer

BROKEN = "the listener was told to fail"
LONG = 120
"""Seconds that a test waits at most."""


def table(spark: SparkSession, server: RabbitServer, *queues: str, **given: Any) -> DataFrame:
    """A stream of queues."""
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-rabbitmq").option("host", "127.0.0.1").option("port", server.port)
    return reader.option("queues", ",".join(queues)).options(**given).load()


def read(df: DataFrame, home: Path, **options: Any) -> None:
    """Run what is there into files, and end."""
    writer_into(home, sj.stream(df.select("message_id", "queue", F.col("body").cast("string"))), **options).trigger(
        availableNow=True
    ).start().awaitTermination()


def writer_into(home: Path, results: Any, **options: Any) -> Any:
    """A writer of files with a home."""
    writer = results.writeStream.format("files").option("path", str(home / "out")).options(**options)
    return writer.option("checkpointLocation", str(home / "home"))


def written(home: Path) -> list[str]:
    rows = sj.read_files(str(home / "out")).collect()
    assert all(row["body"] == f"body of {row['message_id']}" for row in rows)
    return sorted((row["message_id"] for row in rows), key=lambda each: int(each[1:]))


# In CI so are many messages, below, though a run fails.
@pytest.mark.long
def test_each_message_is_written_once_and_acknowledged(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queues = rabbitmq.queue(), rabbitmq.queue(quorum=True)
    for queue, first in zip(queues, (0, 200), strict=True):
        send(rabbitmq, queue, *ids(first, first + 200))
    df = table(spark, rabbitmq, *queues, maxMessagesPerTrigger=250)
    read(df, tmp_path)
    assert written(tmp_path) == ids(0, 400)
    assert ready(rabbitmq, *queues) == [0, 0]
    send(rabbitmq, queues[0], *ids(400, 410))
    read(df, tmp_path)
    assert written(tmp_path) == ids(0, 410)
    assert ready(rabbitmq, *queues) == [0, 0]


@pytest.mark.crash
@pytest.mark.parametrize("count", [40_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_messages_are_written_once_though_a_run_fails(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path, count: int
) -> None:
    queues = [rabbitmq.queue() for _ in range(2)]
    connection = rabbitmq.connection()
    channel = connection.channel()
    for number in range(count):
        properties = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        channel.basic_publish("", queues[number % 2], b"%d" % number, properties)
    connection.close()
    # Otherwise there might be too few epochs for the failure.
    df = table(spark, rabbitmq, *queues, maxUnacknowledged=10_000)
    seen = []

    def fail(phase: EpochPhase, epoch: int) -> None:
        seen.append(epoch)
        if phase is EpochPhase.DECIDE and epoch == 4:
            raise RuntimeError(BROKEN)

    with pytest.raises(RuntimeError, match=BROKEN):
        writer_into(tmp_path, sj.stream(df)).trigger(availableNow=True).onEpochPhase(fail).start().awaitTermination()
    writer_into(tmp_path, sj.stream(df)).trigger(availableNow=True).start().awaitTermination()
    numbers = sj.read_files(str(tmp_path / "out")).select(F.col("body").cast("string").cast("long").alias("n"))
    [found] = numbers.agg(F.count("n"), F.countDistinct("n"), F.sum("n")).collect()
    assert tuple(found) == (count, count, count * (count - 1) // 2)
    assert ready(rabbitmq, *queues) == [0, 0]


def counts(df: DataFrame) -> Any:
    """Messages by minute, whose second is in the id, and queue."""
    seconds = F.timestamp_seconds(F.regexp_extract("message_id", "[0-9]+", 0).cast("long"))
    timed = sj.stream(df.withColumn("ts", seconds)).withWatermark("ts", "0 seconds")
    return timed.groupBy(sj.window("ts", "1 minute"), "queue").count()


@pytest.mark.crash
@pytest.mark.parametrize("overlap", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_queue_that_lags_holds_the_windows_and_nothing_is_late(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path, overlap: bool
) -> None:
    ahead, behind = rabbitmq.queue(), rabbitmq.queue()
    for queue, first in ((ahead, 3600), (behind, 0)):
        send(rabbitmq, queue, *ids(first, first + 120))
    df = table(spark, rabbitmq, ahead, behind, maxMessagesPerTrigger=50)
    query = (
        writer_into(tmp_path, counts(df), overlapEpochs=overlap, closeWindowsAtEnd=True)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    assert {name: each["lateRows"] for name, each in progress["substreams"].items()} == {ahead: 0, behind: 0}
    rows = sj.read_files(str(tmp_path / "out")).collect()
    assert sorted((row["queue"] == ahead, row["count"]) for row in rows) == [(False, 60)] * 2 + [(True, 60)] * 2
    assert ready(rabbitmq, ahead, behind) == [0, 0]


@pytest.mark.crash
@pytest.mark.parametrize("quorum", [False, pytest.param(True, marks=pytest.mark.long)])
def test_with_a_drift_the_queue_ahead_waits_and_all_is_read_though_a_run_fails(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path, quorum: bool
) -> None:
    ahead, behind = rabbitmq.queue(quorum=quorum), rabbitmq.queue(quorum=quorum)
    for queue, first in ((ahead, 3600), (behind, 0)):
        send(rabbitmq, queue, *ids(first, first + 120))
    # Each may deliver 20 before they are decided.
    df = table(spark, rabbitmq, ahead, behind, maxUnacknowledged=40, maxWatermarkDrift="5 minutes")
    found: list[Any] = []

    def run(fails_in: int | None) -> None:
        def fail(phase: EpochPhase, epoch: int) -> None:
            if phase is EpochPhase.DECIDE and epoch == fails_in:
                raise RuntimeError(BROKEN)

        writer = writer_into(tmp_path, counts(df), closeWindowsAtEnd=fails_in is None).trigger(availableNow=True)
        query = writer.onEpochPhase(fail).start()
        try:
            query.awaitTermination()
        finally:
            found.extend(each for each in query.recentProgress if each["batchId"] is not None)

    with pytest.raises(RuntimeError, match=BROKEN):
        run(4)
    run(None)
    held = [each for each in found if each["substreams"].get(ahead, {}).get("heldBack") is not None]
    assert len(held) > 2
    assert {each["substreams"][ahead]["heldBy"] for each in held} == {behind}
    # What was delivered before it was known: in each of the two runs what each may, and once more as it is decided.
    ends = [json.loads(each.sources[0].endOffset)["queues"] for each in held]
    assert max(end[ahead] for end in ends if end[behind] < 120) <= 80
    assert found[-1]["lateRows"]["total"] == 0
    rows = sj.read_files(str(tmp_path / "out")).collect()
    assert sorted((row["queue"] == ahead, row["count"]) for row in rows) == [(False, 60)] * 2 + [(True, 60)] * 2
    assert ready(rabbitmq, ahead, behind) == [0, 0]


@pytest.mark.crash
def test_a_message_without_an_id_ends_exactly_once_and_is_accepted_by_at_least_once(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, None)
    df = table(spark, rabbitmq, queue)
    with pytest.raises(StreamingQueryException, match=f"A message of queue '{queue}' has no id"):
        read(df, tmp_path)
    assert ready(rabbitmq, queue) == [1]
    read(df, tmp_path, processingGuarantee="at-least-once")
    assert [row["body"] for row in sj.read_files(str(tmp_path / "out")).collect()] == ["body of None"]
    assert ready(rabbitmq, queue) == [0]


@pytest.mark.crash
def test_a_queue_that_is_deleted_ends_the_query(spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 5))
    df = table(spark, rabbitmq, queue, reconnectTimeoutMs=500)
    stream = sj.stream(df.select("message_id", "queue", F.col("body").cast("string")))
    query = writer_into(tmp_path, stream).start()
    query.processAllAvailable()
    assert written(tmp_path) == ids(0, 5)
    connection = rabbitmq.connection()
    connection.channel().queue_delete(queue)
    connection.close()
    with pytest.raises(StreamingQueryException, match=r"the broker cannot be reached: .*NOT_FOUND - no queue"):
        query.awaitTermination(LONG)


def test_bad_options_are_refused_by_load(spark: SparkSession) -> None:
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-rabbitmq")
    with pytest.raises(AnalysisException, match="needs option"):
        reader.load()


@pytest.mark.crash
def test_a_message_that_the_query_cannot_handle_holds_nothing_up_once_it_can(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queue = rabbitmq.queue()
    connection = rabbitmq.connection()
    for number, body in enumerate([b"1", b"poison", b"3"]):
        properties = pika.BasicProperties(message_id=f"m{number}", delivery_mode=2)
        connection.channel().basic_publish("", queue, body, properties)
    connection.close()
    stream = sj.stream(table(spark, rabbitmq, queue))
    text = F.col("body").cast("string")
    strict = stream.select("message_id", text.cast("int").alias("number"))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="CAST_INVALID_INPUT"):
            writer_into(tmp_path, strict).trigger(availableNow=True).start().awaitTermination()
    lenient = stream.select("message_id", text.try_cast("int").alias("number"))
    writer_into(tmp_path, lenient).trigger(availableNow=True).start().awaitTermination()
    found = sj.read_files(str(tmp_path / "out")).select("message_id", "number").collect()
    assert sorted(map(tuple, found)) == [("m0", 1), ("m1", None), ("m2", 3)]
    assert ready(rabbitmq, queue) == [0]


@pytest.mark.long
def test_queues_that_come_go_and_change_places_keep_their_ids(
    spark: SparkSession, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    """Runs die when an epoch is decided, so that the next one gets its messages again, and knows them."""
    one, two, three = (rabbitmq.queue() for _ in range(3))
    sent = 0

    def run(*queues: str, dies: bool = True) -> None:
        nonlocal sent
        for queue in queues:
            send(rabbitmq, queue, *ids(sent, sent + 20))
            sent += 20
        frames = [table(spark, rabbitmq, queue) for queue in queues]
        rows = reduce(DataFrame.union, frames).select("message_id", "queue", F.col("body").cast("string"))

        def die(phase: EpochPhase, _: int) -> None:
            if dies and phase is EpochPhase.DECIDE:
                raise RuntimeError(BROKEN)

        writer = writer_into(tmp_path, sj.stream(rows), onChange="apply").trigger(availableNow=True).onEpochPhase(die)
        with pytest.raises(RuntimeError, match=BROKEN) if dies else nullcontext():
            writer.start().awaitTermination()

    run(one, two)
    run(two, one)
    run(three, two, one, dies=False)
    run(one, three)
    run(three, one, dies=False)
    assert written(tmp_path) == ids(0, sent)
    assert ready(rabbitmq, one, three) == [0, 0]
