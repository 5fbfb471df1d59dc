"""A driver without Spark whose sink is a Kafka topic: the same driver, with Kafka's transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from sparkjet.errors import SparkjetError
from sparkjet.options import Options
from sparkjet.sinks.kafka.pool import TaskResult, TransactionPool
from sparkjet.sinks.kafka.producer_settings import KafkaSettings
from sparkjet.sinks.kafka.producing import KafkaWriter, ProduceError
from sparkjet.sinks.kafka.transactions import KafkaTransactions
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId, Unknown
from tests.protocol.driver import Orders, PlainDriver

TOO_LONG = b"x" * 2_000_000


def place(client: Mapping[str, str], topic: str) -> str:
    """The destination of a driver, as stored in its orders."""
    return json.dumps({"topic": topic, **{f"kafka.{name}": value for name, value in client.items()}})


def settings(place: str) -> KafkaSettings:
    """Settings for a destination."""
    return KafkaSettings.of(Options({"kafka.message.timeout.ms": "5000", "kafka.log_level": "0", **json.loads(place)}))


def batch(*rows: tuple[int, int]) -> pa.RecordBatch:
    """Rows of a number and the task that wrote it."""
    values = [str(number).encode() for number, _ in rows]
    return pa.record_batch({"key": pa.array([str(task).encode() for _, task in rows]), "value": pa.array(values)})


@dataclass
class PlainKafkaSink:
    """The sink's protocol with rows from a list: what the Spark sink does, without Spark."""

    orders: Orders
    reached: Callable[[str, int], None]
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)

    def __post_init__(self) -> None:
        self._settings = settings(self.orders.dsn)
        self.transactions = KafkaTransactions(self._settings.access, patience=0.5)
        self.pool = TransactionPool(self.transactions)

    def prepare(self, numbers: Any, transaction: TransactionId) -> Handle | None:
        """Write the rows into as many transactions as there are tasks."""
        epoch, tasks = transaction.epoch, self.orders.tasks
        here = epoch == self.orders.stop_in
        prefix = self.pool.begin(transaction)
        writer = KafkaWriter(self._settings.producer, prefix, self._settings.topic, patience=5.0)
        answers = []
        for task in range(tasks):
            rows = batch(*((n, task) for n in numbers if n % tasks == task))
            if self.orders.broken_task and here and task == tasks - 1:
                rows = pa.record_batch({"value": pa.array([TOO_LONG])})
            attempts = 1 + (self.orders.repeats_tasks and here)
            for attempt in range(attempts):
                self.reached("before write", epoch)
                name = f"p{task:05d}-{attempt}" if attempt else f"p{task:05d}"
                written = writer.write(name, [rows], lambda: self.reached("written", epoch))
                self.reached("prepared", epoch)
            answers.append(TaskResult(*written, is_first=attempts == 1))
        late = self.orders.late_task and here
        handle = self.pool.fix(answers, speculates=late)
        if late:
            writer.write("p00000-late", [batch((-1, -1))])
        self.reached("manifest", epoch)
        return handle

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Publish the rows."""
        self.pool.commit(handle, between)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Unknown:
        """The driver does not ask."""
        return Unknown.UNKNOWN

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """As the sink does."""
        self.transactions.abort_orphans(query, takeover, keep)

    def check(self, schema: Any) -> None:
        """The test has created the topic."""


class KafkaDriver(PlainDriver):
    """Runs epochs into a topic."""

    def _sink(self) -> PlainKafkaSink:
        return PlainKafkaSink(self._orders, self._reached)


def main(orders: Orders, pipe: Connection) -> None:
    """The body of a driver's process; reports how it ended."""
    try:
        KafkaDriver(orders, pipe).run()
    except (SparkjetError, ProduceError) as error:
        pipe.send(("ended", type(error).__name__, str(error)))
    else:
        pipe.send(("ended", None, ""))
