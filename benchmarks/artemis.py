"""AQ: the cost of exactly once from ActiveMQ Artemis, against a bare loop that reads, converts and acknowledges.

``python -m benchmarks.artemis``. 50,000 messages of 100 bytes in one queue, and in four; the broker on the same
machine. As :mod:`benchmarks.rabbitmq`; the bare loop is of stomp.py, which acknowledges every 500 messages those of
each queue at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import stomp

from benchmarks.queues import compared, drained
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from tests.servers.artemis import PASSWORD, USER, ArtemisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 50_000
ACKNOWLEDGED = 500
COLUMNS = pa.schema([("body", pa.string()), ("message_id", pa.string()), ("queue", pa.string())])


class Reading(stomp.ConnectionListener):
    """The bare loop: rows into Arrow batches, and an acknowledgement for each."""

    def __init__(self, connection: stomp.Connection12) -> None:
        self._connection = connection
        self._rows: list[tuple[str, str, str]] = []
        self._newest: dict[str, str] = {}
        self.read = 0
        self.done = threading.Event()

    def on_message(self, frame: Any) -> None:
        """One message, in stomp.py's thread."""
        headers = frame.headers
        self._rows.append((frame.body, headers["message-id"], headers["destination"]))
        self._newest[headers["subscription"]] = headers["ack"]
        if len(self._rows) < ACKNOWLEDGED:
            return
        columns = zip(zip(*self._rows, strict=True), COLUMNS, strict=True)
        arrays = [pa.array(values, field.type) for values, field in columns]
        self.read += pa.RecordBatch.from_arrays(arrays, schema=COLUMNS).num_rows
        self._rows.clear()
        for newest in self._newest.values():
            self._connection.ack(newest)
        self._newest.clear()
        if self.read == MESSAGES:
            self.done.set()


def fill(server: ArtemisServer, queues: Sequence[str]) -> None:
    """Send the messages."""
    with server.client() as client:
        for queue in queues:
            client.send(queue, *(f"{number:0100d}" for number in range(MESSAGES // len(queues))))


def bare(server: ArtemisServer, queues: Sequence[str]) -> float:
    """Seconds in which one process reads all queues into Arrow and acknowledges."""
    fill(server, queues)
    connection = stomp.Connection12([("127.0.0.1", server.port)], auto_content_length=False)
    reading = Reading(connection)
    connection.set_listener("", reading)
    connection.connect(USER, PASSWORD, wait=True)
    began = time.perf_counter()
    for queue in queues:
        window = {"subscription-type": "ANYCAST", "consumer-window-size": "-1"}
        connection.subscribe(queue, queue, "client", window)
    reading.done.wait()
    taken = time.perf_counter() - began
    connection.disconnect()
    return taken


def through_spark(session: SparkSession, server: ArtemisServer, queues: Sequence[str]) -> float:
    """Seconds of sparkjet's source."""
    fill(server, queues)
    given: dict[str, str | int] = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
    reader = session.readStream.format("sparkjet-artemis").options(**given, queues=",".join(queues))
    return drained(reader.load(), MESSAGES)


def study() -> list[Ratio]:
    """The ratios of both numbers of queues."""
    with ArtemisServer() as server:

        def ours(session: SparkSession, queues: Sequence[str]) -> float:
            return through_spark(session, server, queues)

        return compared("AQ", "Artemis", MESSAGES, server.queue, ours, lambda queues: bare(server, queues))


if __name__ == "__main__":
    main(study)
