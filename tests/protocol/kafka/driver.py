"""A driver without Spark whose sink is a Kafka topic: the same driver, with each of the two ways into Kafka."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from sparkjet.connectors.kafka.pool import TaskResult, TransactionPool
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.producing import KafkaWriter, ProduceError
from sparkjet.connectors.kafka.progress_topic import ProgressTopic
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.connectors.kafka.transactions import KafkaTransactions
from sparkjet.errors import RecoveryError, SinkError, SparkjetError
from sparkjet.options import Options
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId, Unknown
from sparkjet.snapshots.record import Record
from sparkjet.storage.directory import Directory
from sparkjet.storage.posix_directory import as_directory
from tests.protocol.driver import Orders, PlainDriver

STAGED = "staged"
"""The way of :class:`Orders` into Kafka that is not ``kafka``."""
TOO_LONG = b"x" * 2_000_000


def place(client: Mapping[str, str], topic: str) -> str:
    """The destination of a driver, as stored in its orders."""
    return json.dumps({"topic": topic, **{f"kafka.{name}": value for name, value in client.items()}})


def settings(place: str) -> KafkaSettings:
    """Settings for a destination."""
    return KafkaSettings.of(Options({"kafka.message.timeout.ms": "5000", "kafka.log_level": "0", **json.loads(place)}))


def staged_settings(orders: Orders) -> StagedSettings:
    """The same, with ``commit=staged``: each task's rows are a part."""
    given = {"kafka.message.timeout.ms": "5000", "kafka.log_level": "0", **json.loads(orders.dsn)}
    made = StagedSettings.of(Options(given))
    # All drivers of these tests have the same query.
    return replace(made, few=0, writers=4, progress=f"progress-{made.topic}")


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
        prepared = round(1000 * time.time())
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
        if handle is not None:
            handle["prepared"] = prepared
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


class PlainStagedSink(StagedKafkaSink):
    """The sink with ``commit=staged``, with rows from a list; its parts are published one after the other."""

    def __init__(self, orders: Orders, reached: Callable[[str, int], None] = lambda *_: None) -> None:
        super().__init__(staged_settings(orders))
        self._orders, self._reached = orders, reached
        self._directory = as_directory(orders.home / "outbox")

    def prepare(self, numbers: Any, transaction: TransactionId) -> Handle | None:
        """Store the rows, a file for each task."""
        try:
            return self._stored(numbers, transaction)
        except FileNotFoundError as error:
            # A successor has removed what this driver has not decided.
            raise SinkError(str(error)) from error

    def _stored(self, numbers: Any, transaction: TransactionId) -> Handle:
        epoch, tasks, topic = transaction.epoch, self._orders.tasks, self._settings.topic
        entries, box = self._entries(transaction.sink), str(transaction)
        directory = entries.at(box).path
        assert directory is not None
        assert topic is not None
        directory.mkdir(parents=True)
        names = [f"part-{task:05d}.parquet" for task in range(tasks)]
        for task, name in enumerate(names):
            self._reached("before write", epoch)
            rows = batch(*((n, task) for n in numbers if n % tasks == task))
            parquet.write_table(pa.Table.from_batches([rows]), directory / name)
            self._reached("written", epoch)
        self._reached("prepared", epoch)
        stored = {"sink": transaction.sink, "box": box, "epoch": epoch, "rows": len(numbers)}
        handle = self.in_parts({**stored, "files": entries.seal(box, names)}, transaction, [topic])
        self._reached("manifest", epoch)
        return handle

    def _publish_in_tasks(self, progress: ProgressTopic, entry: Directory, handle: Handle, *, again: bool) -> None:
        for number in range(len(handle["parts"])):
            self._publish(progress, entry, handle, number, again=again)
            if not number:
                self._reached("first committed", handle["epoch"])


class KafkaDriver(PlainDriver):
    """Runs epochs into a topic, the one way or the other."""

    def _sink(self) -> Any:
        if self._orders.way == STAGED:
            return PlainStagedSink(self._orders, self._reached)
        return PlainKafkaSink(self._orders, self._reached)

    def _transaction(self, epoch: int) -> TransactionId:
        # Copies of the home have their own runs.
        return replace(super()._transaction(epoch), run=self._run, since=self._since)

    def _take_over(self) -> tuple[int, Record]:
        slot, record = super()._take_over()
        self._run, self._since = uuid.uuid4().hex[:8] if self._orders.way == STAGED else "", record.epoch
        sink: Any = self._outputs.sinks["results"]
        if self._orders.way == STAGED:
            last = {each.sink: each.handle for each in record.transactions}
            before = TransactionId(record.query, "results", max(0, record.takeover - 1), record.epoch, 0)
            later = sink.published_after(before, last.get("results"))
            if isinstance(later, str):
                raise RecoveryError(later)
            sink.create()
        return slot, record


def main(orders: Orders, pipe: Connection) -> None:
    """The body of a driver's process; reports how it ended."""
    try:
        KafkaDriver(orders, pipe).run()
    except (SparkjetError, ProduceError) as error:
        pipe.send(("ended", type(error).__name__, str(error)))
    else:
        pipe.send(("ended", None, ""))
