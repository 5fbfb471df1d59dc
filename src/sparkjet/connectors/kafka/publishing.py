"""Publishing the parts of a decided epoch with librdkafka: in the executors, or by the driver.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet
except what is shipped with it.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
import pyarrow as pa
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pyarrow import parquet

from sparkjet.connectors.kafka.parts import FENCED, Ends, Marker, Part, ProducerFencedError, PublishError, publish
from sparkjet.connectors.kafka.producing import SLICE_BYTES, ProduceError, Queue, explain, producer_of

T = TypeVar("T")
FENCING = frozenset({-144, -150, -172, -152, -151, 47, 48, 90})
"""Codes of a producer that has to start over, as it was fenced or its transaction timed out.

They are _FENCED, _FATAL, _STATE, _PURGE_QUEUE, _PURGE_INFLIGHT, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
PRODUCER_FENCED. Safe for any.
"""
_END = -191
"""The code that a consumer gets at the end of a partition."""
_MOVING = frozenset({5, 6, 7, 9, 13, 56, 74, 75, 78, -185, -195})
"""Codes of a partition whose leader is being elected, has not caught up yet, or does not answer."""
ANSWER = 5.0
"""Seconds that a broker may take: until then a dead one is asked in vain, and another one afterwards."""
_PAUSE = 0.5
"""Maximum seconds before a fenced publisher starts over, so that two of them do not fence each other forever."""
LOOK = 0.02
"""Seconds between two looks for the last stable offset."""
_CHUNK = 8192
"""The most rows that are read at once."""
READER = {
    "group.id": "sparkjet-markers",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 10,
    # A topic may begin after offset 0; librdkafka would continue from its end.
    "auto.offset.reset": "earliest",
}
"""Properties of a reader of markers, which override those of the client."""
UNCOMMITTED, COMMITTED = (
    confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
    confluent_kafka.IsolationLevel.READ_COMMITTED,
)


Rows = Callable[[int], Iterable[pa.RecordBatch]]
"""Reads the rows of a part, starting at a row's number."""


@dataclass(frozen=True)
class Place:
    """The destination of a part, and the place of its markers.

    Attributes:
        producer: librdkafka's properties for producers; include the password and are never shown.
        client: The same for clients that only ask and read.
        name: Transactional id.
        markers: The topic of the markers.
        keys: Keys of the markers to write, each with its partition; the first is the part's own, the others are written
            once all ``rows`` of the part are.
        rows: Number of rows in the part.
        topic: The topic of rows without a column ``topic``.
        topics: All topics that rows may go to, each with its id.
        watermark: The query's watermark after the epoch, in microseconds, for the epoch's marker; None if it has none.
        since: Offsets in the partitions of the ``keys``; everything before them is known.
        newest: The newest marker before that offset.
        headers: Whether the rows have headers, or may have: handles of earlier versions do not say.
        longest: Seconds after which a transaction takes no more rows.
        patience: Seconds to wait for a broker, or for open transactions of others.
    """

    producer: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    name: str
    markers: str
    keys: tuple[tuple[int, str], ...]
    rows: int
    topic: str | None
    topics: tuple[tuple[str, str], ...]
    watermark: int | None
    since: tuple[int, ...]
    newest: Marker | None
    headers: bool
    longest: float
    patience: float


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Report errors of librdkafka as those of a publisher."""
    try:
        yield
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() in FENCING:
            raise ProducerFencedError(str(error)) from error
        raise PublishError(explain(*error.args)) from error
    except ProduceError as error:
        raise PublishError(str(error)) from error
    except SystemError as error:
        # librdkafka raises this at times for a fenced producer.
        raise ProducerFencedError(str(error)) from error


class KafkaBrokers:
    """See :class:`sparkjet.connectors.kafka.parts.Brokers`; a producer that is not fenced is reused.

    Args:
        place: Where the part goes.
        rows: Takes a row's number, and reads the part's rows from there on; None if only the marker is written.
    """

    def __init__(self, place: Place, rows: Rows | None) -> None:
        self.known: tuple[Marker | None] | None = None
        self._place, self._rows = place, rows
        self._producer: Any = None
        self._queue: Queue | None = None
        self._admin: Any = None
        self._read = self._known()

    def turn_to(self, place: Place, rows: Rows | None) -> None:
        """Continue with another epoch's part of the same transactional id."""
        now, before = place, self._place
        if (now.producer, now.topics, now.headers) != (before.producer, before.topics, before.headers):
            # The topic's limits have changed, and a producer keeps the properties that it was created with; or its rows
            # have headers, unlike those of an earlier run. Or the
            # topic was recreated: librdkafka follows no leader whose epoch is lower than that of the leader it knows,
            # and the epochs of the new topic start over.
            self.known = None
        self._place, self._rows = place, rows
        self._read = self._known()

    def init(self) -> None:
        """See :meth:`Brokers.init`."""
        self._producer = None
        properties = {**self._place.producer, "transactional.id": self._place.name}
        with explained():
            producer = producer_of(properties, headers=self._place.headers)
            producer.init_transactions(self._place.patience)
        self._producer = producer

    def marker_ends(self) -> Ends:
        """See :meth:`Brokers.marker_ends`."""
        return self._ends(list(self._known()))

    def data_ends(self) -> Ends:
        """See :meth:`Brokers.data_ends`."""
        with explained():
            return self._ends(partitions_of(self._asking(), dict(self._place.topics), self._place.patience))

    def behind(self, ends: Ends) -> tuple[str, int] | None:
        """See :meth:`Brokers.behind`."""
        with explained():
            found = unread(self._asking(), ends, self._place.patience)
        if found is not None:
            time.sleep(LOOK)
        return found

    def markers(self, ends: Ends) -> Sequence[Marker | None]:
        """See :meth:`Brokers.markers`."""
        place = self._place
        keys = [key for _, key in place.keys]
        found: dict[str, Marker | None] = {keys[0]: place.newest}
        with explained():
            for key, value in MarkerReader(place.client, place.patience).read(self._known(), ends):
                if key in keys:
                    found[key] = marker_of(value)
        self._read = dict(ends)
        return [found.get(key) for key in keys]

    def begin(self) -> None:
        """See :meth:`Brokers.begin`."""
        self._queue = Queue(self._producer)
        with explained():
            self._producer.begin_transaction()

    def send(self, start: int) -> Iterator[int]:
        """See :meth:`Brokers.send`."""
        assert self._queue is not None  # noqa: S101 - begin() comes first
        if self._rows is None:
            yield self._place.rows - start
            return
        with self._undone(), explained():
            yield from self._queue.fill(self._rows(start), self._place.topic)

    def mark(self, marker: Marker) -> None:
        """See :meth:`Brokers.mark`."""
        assert self._queue is not None  # noqa: S101 - begin() comes first
        place = self._place
        with self._undone(), explained():
            self._queue.drain()
            keys = place.keys if marker.rows == place.rows else place.keys[:1]
            for number, key in keys:
                told = {} if number else told_of(self.data_ends(), place.watermark)
                value = json.dumps({"version": 1, **asdict(marker), **told})
                self._queue.put(place.markers, [{"key": key.encode(), "value": value.encode(), "partition": number}])
            self._queue.drain()
        with self._undone():
            for where, end in self._ends([(place.markers, number) for number, _ in keys]).items():
                if end != self._read[where] + 1:
                    raise PublishError(f"another publisher has written to {where[0]}-{where[1]} at the same time.")
                # Including the end marker of this transaction.
                self._read[where] = end + 1

    def _known(self) -> dict[tuple[str, int], int]:
        place = self._place
        return {(place.markers, number): since for (number, _), since in zip(place.keys, place.since, strict=True)}

    def commit(self) -> None:
        """See :meth:`Brokers.commit`."""
        with self._undone(), explained():
            self._producer.commit_transaction(self._place.patience)

    @contextlib.contextmanager
    def _undone(self) -> Iterator[None]:
        """Roll back what fails, best effort: readers would otherwise wait for the next attempt, or the timeout."""
        try:
            yield
        except PublishError:
            with contextlib.suppress(Exception):
                self._producer.abort_transaction(1)
            raise

    def _asking(self) -> Any:
        if self._admin is None:
            self._admin = AdminClient(dict(self._place.client))
        return self._admin

    def _ends(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        with explained():
            return ends_of(self._asking(), partitions, UNCOMMITTED, self._place.patience)


def told_of(ends: Ends, watermark: int | None) -> dict[str, Any]:
    """Further content of an epoch's marker: the offset after its rows in each partition, and its watermark."""
    listed: dict[str, list[int]] = {}
    for (topic, _), end in sorted(ends.items()):
        listed.setdefault(topic, []).append(end)
    return {"ends": listed, "watermark": watermark}


def answered(admin: Any, ask: Callable[[], T], patience: float) -> T:
    """The brokers' answer; asked again while leaders are elected, or if the broker that was asked is gone."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > until:
                raise
        time.sleep(LOOK)
        # The client keeps asking the brokers that it knows, with the leader epochs that it knows, and learns of others
        # only this way. Not by topic name, as brokers may create a topic that is named.
        with contextlib.suppress(confluent_kafka.KafkaException):
            admin.list_topics(timeout=ANSWER)


def ends_of(
    admin: Any, partitions: Sequence[tuple[str, int]], level: Any, patience: float
) -> dict[tuple[str, int], int]:
    """The ends of partitions, as readers of an isolation level know them."""
    asked = {confluent_kafka.TopicPartition(*each): OffsetSpec.latest() for each in partitions}

    def ask() -> dict[tuple[str, int], int]:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER)
        return {(each.topic, each.partition): answer.result().offset for each, answer in answers.items()}

    return answered(admin, ask, patience) if asked else {}


def unread(admin: Any, ends: Ends, patience: float) -> tuple[str, int] | None:
    """A partition that read_committed readers cannot yet read up to its end; None if there is none."""
    stable = ends_of(admin, list(ends), COMMITTED, patience)
    return next((where for where, end in ends.items() if stable[where] < end), None)


def partitions_of(admin: Any, topics: Iterable[str], patience: float) -> list[tuple[str, int]]:
    """All partitions of some topics, which must exist."""
    found = topics_of(admin, topics, patience)
    return [(name, number) for name, each in found.items() for number in sorted(part.id for part in each.partitions)]


def topics_of(admin: Any, topics: Iterable[str], patience: float) -> dict[str, Any]:
    """Some topics, which must exist; requested so that brokers do not create missing ones."""

    def ask() -> dict[str, Any]:
        answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER)
        return {name: answer.result() for name, answer in answers.items()}

    return answered(admin, ask, patience) if topics else {}


class MarkerReader:
    """Reads markers, only committed ones; its connections stay open until it is garbage-collected.

    Args:
        client: librdkafka's properties.
        patience: Seconds to wait for brokers.
    """

    def __init__(self, client: Mapping[str, str], patience: float) -> None:
        self._client, self._patience = client, patience
        self._consumer: Any = None

    def read(self, since: Ends, ends: Ends) -> Iterator[tuple[str, bytes | None]]:
        """The records between two offsets of each partition, with their keys; None for a deleted key."""
        wanted = {where: end for where, end in ends.items() if since.get(where, 0) < end}
        if not wanted:
            return
        if self._consumer is None:
            self._consumer = confluent_kafka.Consumer({**self._client, **READER})
        self._consumer.assign([confluent_kafka.TopicPartition(*where, since.get(where, 0)) for where in wanted])
        until = time.monotonic() + self._patience
        while wanted:
            if time.monotonic() > until:
                raise PublishError(f"the markers in {sorted(wanted)} could not be read within {self._patience:.0f} s")
            for found in self._consumer.consume(500, 0.1):
                if found.topic() is None:
                    # Of the group, whose coordinator librdkafka looks for: reading this way needs no permission for it.
                    continue
                where, reached = (found.topic(), found.partition()), found.offset()
                if found.error() is None:
                    reached += 1
                    yield (found.key() or b"").decode(errors="replace"), found.value()
                elif found.error().code() != _END:
                    raise confluent_kafka.KafkaException(found.error())
                # The last offsets may be end markers, which no reader gets: only the end-of-partition event tells.
                if reached >= ends[where]:
                    wanted.pop(where, None)
        self._consumer.unassign()


def marker_of(value: bytes | None) -> Marker | None:
    """The marker in a record; only for a marker's key, as a topic may also have other records."""
    if value is None:
        return None
    found = json.loads(value)
    return Marker(found["epoch"], found["name"], found["run"], found["rows"])


def rows_of(files: Sequence[Any], start: int) -> Iterator[pa.RecordBatch]:
    """The rows of Parquet files, starting at a row, always in the same order."""
    for each in files:
        with contextlib.ExitStack() as opened:
            content = opened.enter_context(each()) if callable(each) else each
            file = opened.enter_context(parquet.ParquetFile(content))
            if start >= file.metadata.num_rows:
                start -= file.metadata.num_rows
                continue
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            # A batch may span several groups: of large rows, it would take gigabytes.
            size = 1 + max(group.total_byte_size / group.num_rows for group in groups if group.num_rows)
            for batch in file.iter_batches(max(1, min(_CHUNK, int(SLICE_BYTES / size)))):
                if start < batch.num_rows:
                    yield batch.slice(start)
                start = max(0, start - batch.num_rows)


def run(part: Part, brokers: KafkaBrokers, place: Place, *, again: bool) -> None:
    """Publish a part."""
    steps = publish(part, brokers, time.monotonic, longest=place.longest, patience=place.patience, again=again)
    for step in steps:
        if step == FENCED:
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - nothing is secret


@dataclass(frozen=True)
class PublishTask:
    """Publishes the parts whose numbers it gets, each from its files.

    Attributes:
        parts: The parts by number, each with its place and its files.
        again: Whether they may have been tried before.
    """

    parts: Mapping[int, tuple[Part, Place, Sequence[str]]]
    again: bool

    def task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of a Spark task, for ``mapInArrow``."""
        from pyspark import TaskContext  # noqa: PLC0415 - the workers have it, plain processes need not

        context = TaskContext.get()
        again = self.again or context is None or context.attemptNumber() > 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part, place, files = self.parts[number]
                brokers = KafkaBrokers(place, partial(rows_of, files))
                try:
                    run(part, brokers, place, again=again)
                except PublishError as error:
                    # Of exactly this type, as the driver finds the message by its name.
                    raise PublishError(str(error)) from error
                yield pa.record_batch({"id": pa.array([place.name]), "rows": pa.array([part.rows], pa.int64())})
