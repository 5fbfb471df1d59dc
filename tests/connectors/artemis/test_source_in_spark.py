"""Queues of Artemis in sparkjet's engine: from queue to queue, each message once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.servers.artemis import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.servers.artemis import ArtemisServer

BROKEN = "the listener was told to fail"


def run(
    spark: SparkSession,
    server: ArtemisServer,
    home: Path,
    queues: list[str],
    into: str,
    listen: Callable[[EpochPhase, int], None] | None = None,
) -> None:
    """Send what is in some queues to another one, in capitals, and end."""
    connection = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
    sj.register_sources(spark)
    reader = spark.readStream.format("sparkjet-artemis").options(**connection, queues=",".join(queues))
    df = reader.option("maxMessagesPerTrigger", 70).load()
    body = F.upper(F.col("body").cast("string"))
    rows = sj.stream(df).select(body.alias("body"), F.col("queue").alias("type"), "correlation_id", "properties")
    writer = rows.writeStream.format("artemis").options(**connection, queue=into, checkpointLocation=str(home))
    if listen is not None:
        writer = writer.onEpochPhase(listen)
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.crash
def test_messages_go_from_queue_to_queue_once_though_runs_fail(
    spark: SparkSession, artemis: ArtemisServer, tmp_path: Path
) -> None:
    queues, into = [artemis.queue() for _ in range(2)], artemis.queue()
    expected = []
    with artemis.client() as client:
        for queue in queues:
            bodies = [f"{queue}-m{number}" for number in range(100)]
            client.send(queue, *bodies, number="7", **{"correlation-id": "c"})
            expected += [body.upper() for body in bodies]

    def failing(at: EpochPhase) -> Callable[[EpochPhase, int], None]:
        failed: list[int] = []

        def listen(phase: EpochPhase, epoch: int) -> None:
            if phase is at and epoch > 1 and not failed:
                failed.append(epoch)
                raise RuntimeError(BROKEN)

        return listen

    for at in (EpochPhase.PREPARE, EpochPhase.DECIDE):
        with pytest.raises(RuntimeError, match=BROKEN):
            run(spark, artemis, tmp_path, queues, into, failing(at))
    run(spark, artemis, tmp_path, queues, into)
    assert [artemis.count(queue) for queue in queues] == [0, 0]
    with artemis.client() as client:
        messages = client.read(into, artemis.count(into))
    assert sorted(message.body.decode() for message in messages) == sorted(expected)
    assert {message.headers["type"] for message in messages} == set(queues)
    assert {(message.headers["correlation-id"], message.headers["number"]) for message in messages} == {("c", "7")}


@pytest.mark.long
def test_many_messages_are_written_once_though_a_run_fails(
    spark: SparkSession, artemis: ArtemisServer, tmp_path: Path
) -> None:
    queues, count = [artemis.queue() for _ in range(2)], 100_000
    with artemis.client() as client:
        for number, queue in enumerate(queues):
            client.send(queue, *(str(each) for each in range(number, count, 2)))
    sj.register_sources(spark)
    connection = {"host": "127.0.0.1", "port": artemis.port, "user": USER, "password": PASSWORD}
    reader = spark.readStream.format("sparkjet-artemis").options(**connection, queues=",".join(queues))
    df = reader.option("maxUnacknowledged", 10_000).load()

    def fail(phase: EpochPhase, epoch: int) -> None:
        if phase is EpochPhase.DECIDE and epoch == 4:
            raise RuntimeError(BROKEN)

    writer = sj.stream(df).writeStream.format("files").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True)
    with pytest.raises(RuntimeError, match=BROKEN):
        writer.onEpochPhase(fail).start().awaitTermination()
    writer.start().awaitTermination()
    numbers = sj.read_files(str(tmp_path / "out")).select(F.col("body").cast("string").cast("long").alias("n"))
    [found] = numbers.agg(F.count("n"), F.countDistinct("n"), F.sum("n")).collect()
    assert tuple(found) == (count, count, count * (count - 1) // 2)
    assert [artemis.count(queue) for queue in queues] == [0, 0]
