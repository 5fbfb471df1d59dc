"""RW: the cost of the RabbitMQ sink, against a bare loop that publishes the same Arrow columns without confirms.

``python -m benchmarks.rabbitmq_sink``. Messages of 100 bytes in two partitions of a warm driver, into one durable
queue; the broker runs on the same machine. Both publish persistent messages with ids over one connection of pika's. The
sink stores the rows first, publishes *mandatory*, and waits until every message is confirmed; the loop waits once, for
the answer to another question.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pika
from pyspark.sql import functions as F

from benchmarks.beside import arrow_files, batches_of, in_turns, through_sink
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.connectors.rabbitmq.sink import RabbitSink
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.options import Options
from tests.servers.rabbitmq import RabbitServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 200_000
PARTITIONS = 2
WARM_UP = 1
ROUNDS = 3
GOAL = Goal("bare loop without confirms")


def messages(session: SparkSession) -> DataFrame:
    """Messages like a query's, persisted in memory so that computing them costs neither side."""
    rows = session.range(MESSAGES, numPartitions=PARTITIONS).select(F.lpad(F.col("id"), 100, "0").alias("body"))
    held = rows.cache()
    held.count()
    return held


def bare(server: RabbitServer, queue: str, path: str) -> float:
    """Seconds in which one connection publishes the messages of a file."""
    connection = server.connection()
    channel = connection.channel()
    number = 0
    began = time.perf_counter()
    for batch in batches_of(path):
        for body in batch.column(0).to_pylist():
            properties = pika.BasicProperties(message_id=f"message-{number}", delivery_mode=2)
            channel.basic_publish("", queue, body, properties)
            number += 1
    # Its answer comes after the messages.
    channel.queue_declare(queue, passive=True)
    taken = time.perf_counter() - began
    connection.close()
    return taken


def study() -> list[Ratio]:
    """One ratio, paired by round."""
    session = local_session()
    rows = messages(session)
    with tempfile.TemporaryDirectory() as home, RabbitServer() as server:
        queue = server.queue()
        [file] = arrow_files(rows.select(F.col("body").cast("binary")).toArrow(), 1, Path(home))
        options = {"host": "127.0.0.1", "port": str(server.port), "routingKey": queue}
        sink = RabbitSink(RabbitSinkSettings.of(Options(options)))
        sink.attach(Path(home) / "outbox", session)
        sink.check(rows.schema)

        def empty() -> None:
            connection = server.connection()
            connection.channel().queue_purge(queue)
            connection.close()

        ways = {"sink": lambda round_: through_sink(sink, rows, round_), "bare": lambda _: bare(server, queue, file)}
        seconds = in_turns(ways, ROUNDS, WARM_UP, empty)
    session.stop()
    what = "rows into a queue of RabbitMQ, confirmed"
    return [Ratio.of_seconds("RW", what, GOAL, seconds["sink"], seconds["bare"], MESSAGES)]


if __name__ == "__main__":
    main(study)
