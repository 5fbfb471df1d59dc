"""RQ: the cost of exactly once from RabbitMQ, against a bare loop that reads, converts and acknowledges.

``python -m benchmarks.rabbitmq``. 200,000 messages of 100 bytes in one durable queue, and in four; the broker on the
same machine. Both read into Arrow batches until everything is acknowledged: the bare loop with pika's fastest way and
an acknowledgement for each 500 messages, sparkjet through Spark into ``noop``, with the ids in its records. Time runs
from the first message to the last acknowledgement, in a warm driver; they take turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pika
import pyarrow as pa

from benchmarks.queues import compared, drained
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from sparkjet.connectors.rabbitmq.data_source import ROWS
from tests.servers.rabbitmq import RabbitServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 200_000
ACKNOWLEDGED = 500
PREFETCH = 1000
GOAL = 0.85


def fill(server: RabbitServer, queues: Sequence[str]) -> None:
    """Send the messages, each with an id."""
    connection = server.connection()
    channel = connection.channel()
    for number in range(MESSAGES):
        properties = pika.BasicProperties(message_id=f"message-{number}", delivery_mode=2)
        channel.basic_publish("", queues[number % len(queues)], b"%0100d" % number, properties)
    connection.close()


def bare(server: RabbitServer, queues: Sequence[str]) -> float:
    """Seconds in which one process reads all queues into Arrow and acknowledges."""
    fill(server, queues)
    connection = server.connection()
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    rows: list[tuple[Any, ...]] = []
    read = 0

    def accept(_: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        nonlocal read
        queue, key = method.consumer_tag, method.routing_key
        rows.append((body, properties.message_id, queue, method.exchange, key, None, None, None))
        if len(rows) == ACKNOWLEDGED:
            arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), ROWS, strict=True)]
            read += pa.RecordBatch.from_arrays(arrays, schema=ROWS).num_rows
            channel.basic_ack(method.delivery_tag, multiple=True)
            rows.clear()

    began = time.perf_counter()
    for queue in queues:
        channel.basic_consume(queue, accept, consumer_tag=queue)
    while read < MESSAGES:
        connection.process_data_events(1)
    # Its answer comes after the acknowledgements.
    channel.queue_declare(queues[0], passive=True)
    taken = time.perf_counter() - began
    connection.close()
    return taken


def through_spark(session: SparkSession, server: RabbitServer, queues: Sequence[str]) -> float:
    """Seconds of sparkjet's source."""
    fill(server, queues)
    reader = session.readStream.format("sparkjet-rabbitmq").option("host", "127.0.0.1").option("port", server.port)
    return drained(reader.option("queues", ",".join(queues)).load(), MESSAGES)


def study() -> list[Ratio]:
    """The ratios of both numbers of queues."""
    with RabbitServer() as server:

        def ours(session: SparkSession, queues: Sequence[str]) -> float:
            return through_spark(session, server, queues)

        return compared("RQ", "RabbitMQ", MESSAGES, server.queue, ours, lambda queues: bare(server, queues), GOAL)


if __name__ == "__main__":
    main(study)
