"""The progress topic: a compacted topic whose markers tell, on the brokers, what a query has published."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from sparkjet.connectors.kafka.parts import ProducerFencedError, PublishError
from sparkjet.connectors.kafka.producing import Queue, explain
from sparkjet.connectors.kafka.publishing import (
    ANSWER,
    COMMITTED,
    LOOK,
    MarkerReader,
    answered,
    ends_of,
    marker_of,
    partitions_of,
)
from sparkjet.connectors.kafka.rights import allowing, described, missing
from sparkjet.errors import AnalysisError, SinkError

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.parts import Marker
    from sparkjet.sinks.protocol import Handle, TransactionId

COMPLETE = 0
"""The partition of the markers of whole epochs; part n has partition n + 1, so that no part waits for another."""
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
"""Configuration of a new topic: its active segment is not compacted, so small segments keep it short."""
NEEDED = ("Read", "Write", "Describe")
"""Operations that its user must be allowed there."""
_FEWEST = 2
_SETTLING = 3.0
"""Seconds that a new topic may take to become known."""


def key_of(query: str, sink: str, part: int | None = None) -> str:
    """The key of the markers of a part, or of whole epochs.

    >>> key_of("q", "results", 3)
    '{"query":"q","output":"results","part":3}'
    """
    named: dict[str, object] = {"query": query, "output": sink}
    return json.dumps(named if part is None else {**named, "part": part}, separators=(",", ":"))


@contextmanager
def reached(what: str) -> Iterator[None]:
    """Report the errors of clients that only ask and read."""
    try:
        yield
    except (PublishError, ProducerFencedError) as error:
        raise SinkError(f"Kafka: {what}: {error}") from error
    except confluent_kafka.KafkaException as error:
        raise SinkError(f"{explain(*error.args)} ({what})") from error


class ProgressTopic:
    """The markers of one sink of one query, as the driver knows them.

    Args:
        client: librdkafka's properties; never shown.
        name: The topic.
        query: Identity of the query.
        sink: Name of the sink.
        patience: Seconds to wait for brokers.
    """

    def __init__(self, client: Mapping[str, str], name: str, query: str, sink: str, patience: float) -> None:
        self.name, self._of = name, (name, query, sink)
        self._admin = AdminClient(dict(client))
        self._reader = MarkerReader(client, patience)
        self._patience = patience
        self._complete, self._parts = key_of(query, sink), key_of(query, sink, 0).removesuffix("0}")
        self.newest: dict[str, Marker] = {}
        """Newest marker by key, before :attr:`positions`."""
        self.positions: dict[tuple[str, int], int] = {}
        self.topics: set[str] = set()
        """The topics that markers of whole epochs have named."""
        self.largest: int | None = None
        """The topic's max.message.bytes; None if this user may not read it."""

    def is_of(self, name: str, query: str, sink: str) -> bool:
        """Whether it is this topic, for this sink."""
        return self._of == (name, query, sink)

    @property
    def complete(self) -> Marker | None:
        """The marker of the newest epoch whose parts are all published."""
        return self.newest.get(self._complete)

    def later(self, newest: TransactionId) -> Marker | None:
        """A marker of the last epoch, if a query at this record cannot have published it."""
        # Markers of parts count too: the home may have been lost before all of the epoch was published.
        last = max((each.epoch for each in self.newest.values()), default=0)
        of_last = (each for each in self.newest.values() if each.epoch == last)
        return next((each for each in of_last if last > newest.epoch or _differs(each, newest)), None)

    def wrong_for(self, handle: Handle) -> str | None:
        """Why it cannot be the topic with the markers of what was decided before; None if it can."""
        found, known = self.complete, int(handle["after"])
        if known > (0 if found is None else found.epoch):
            state = "has no epoch of this query" if found is None else f"ends with epoch {found.epoch}"
            return (
                f"{state}, but epoch {known} was published: the topic was emptied, created again or restored, or it is "
                "another one"
            )
        # Until an epoch is known to be published, no number tells: one may be, its marker in a topic that nobody reads.
        used = handle.get("progress", self.name)
        if used != self.name:
            return f'is not "{used}", which has the markers of this home'
        if not self.partitions():
            return "does not exist, but rows were decided when it did"
        if found is None and handle.get("progressMade") not in {None, self.made()}:
            return "was deleted and created again since rows were decided, and its markers are gone"
        return None

    def note(self, marker: Marker, topics: Iterable[str]) -> None:
        """Note the marker that has just been published, before it is read, and the topics that it names."""
        self.newest[self._complete] = marker
        self.topics = set(topics)

    def earlier(self, topics: Collection[str]) -> list[str]:
        """Other topics of earlier epochs, for the marker: the watermark moves there, too.

        Asked for when an epoch is published: one that is deleted after the decision must not keep it from that.
        """
        earlier = self.topics - set(topics)
        with reached("topics of earlier epochs"):
            return sorted(existing(self._admin, earlier, self._patience)) if earlier else []

    def partitions(self) -> int:
        """The number of partitions, 0 if there is no such topic."""
        try:
            return len(partitions_of(self._admin, [self.name], self._patience))
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise AnalysisError(self._refused(NEEDED)) from error
            raise SinkError(f"progressTopic: {explain(error.args[0], self.name)}") from error

    def made(self) -> str:
        """The topic's id, a different one if it was deleted and recreated; empty if there is no such topic."""
        if not self.partitions():
            return ""
        with reached(f"progress topic {self.name!r}"):
            return str(described(self._admin, self.name, self._patience).topic_id)

    def check(self, writers: int, replicas: int) -> None:
        """Refuse a topic that would lose markers, or that is missing and may not be created; changes nothing."""
        found = self.partitions()
        if not found:
            self._create(writers, replicas, try_only=True)
            return
        with reached(f"progress topic {self.name!r}"):
            refused = missing(described(self._admin, self.name, self._patience), NEEDED)
        if refused:
            raise AnalysisError(self._refused(refused))
        policy = self._setting("cleanup.policy")
        if policy not in {None, "compact"}:
            message = (
                f'progressTopic: "{self.name}" has cleanup.policy={policy}, which would lose markers. Set it: '
                f"kafka-configs.sh --alter --entity-type topics --entity-name {self.name} "
                "--add-config cleanup.policy=compact"
            )
            raise AnalysisError(message)
        largest = self._setting("max.message.bytes")
        self.largest = None if largest is None else int(largest)
        if found < _FEWEST:
            message = (
                f'progressTopic: "{self.name}" has one partition and needs {writers + 1}: one for epochs, and one for '
                f"each part. Add them: kafka-topics.sh --alter --topic {self.name} --partitions {writers + 1}"
            )
            raise AnalysisError(message)

    def create(self, writers: int, replicas: int) -> None:
        """Create it if it is missing."""
        if self.partitions():
            return
        self._create(writers, replicas, try_only=False)
        until = time.monotonic() + _SETTLING
        # Brokers respond before all of them know the topic.
        while not self.partitions() and time.monotonic() < until:
            time.sleep(LOOK)

    def forget(self, producer: Mapping[str, str]) -> None:
        """Delete the markers of epochs that the snapshots do not know and that will be published again."""
        with reached(f"progress topic {self.name!r}"):
            queue = Queue(confluent_kafka.Producer({**producer, "delivery.report.only.error": True}))
            for key in self.newest:
                number = COMPLETE if key == self._complete else int(json.loads(key)["part"]) + 1
                queue.put(self.name, [{"key": key.encode(), "value": None, "partition": number}])
            queue.drain()
        self.newest.clear()

    def catch_up(self) -> None:
        """Read the markers that have been committed since the last call."""
        with reached(f"progress topic {self.name!r}"):
            count = self.partitions()
            if not count:
                message = f'progressTopic: "{self.name}" no longer exists; without it nothing can be published.'
                raise SinkError(message)
            ends = ends_of(self._admin, [(self.name, n) for n in range(count)], COMMITTED, self._patience)
            for key, value in self._reader.read(self.positions, ends):
                if key != self._complete and not key.startswith(self._parts):
                    continue
                marker = marker_of(value)
                if marker is None:
                    self.newest.pop(key, None)
                else:
                    self.newest[key] = marker
                if key == self._complete:
                    # The newest alone: it has the earlier ones, but for those that were deleted.
                    self.topics = topics_in(value)
            self.positions = ends

    def _create(self, writers: int, replicas: int, *, try_only: bool) -> None:
        topic = NewTopic(self.name, writers + 1, replicas, config=CONFIG)

        def ask() -> None:
            self._admin.create_topics([topic], validate_only=try_only, request_timeout=ANSWER)[self.name].result()

        try:
            answered(self._admin, ask, self._patience)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            message = (
                f'progressTopic: "{self.name}" does not exist and cannot be created: {explain(*error.args)} Create it: '
                f"{self._command(writers, replicas)}"
            )
            raise AnalysisError(message) from error

    def _refused(self, operations: Sequence[str]) -> str:
        they = " and ".join(operations)
        return (
            f'progressTopic: this user needs {they} on "{self.name}", which brokers refuse. Allow it: '
            f"{allowing(self.name, operations)}"
        )

    def _setting(self, name: str) -> str | None:
        with reached(f"progress topic {self.name!r}"):
            return topic_setting(self._admin, self.name, name, self._patience)

    def _command(self, writers: int, replicas: int) -> str:
        settings = " ".join(f"--config {name}={value}" for name, value in CONFIG.items())
        # Without the option the brokers' default applies; the command has no other way to ask for it.
        copies = f"--replication-factor {replicas} " if replicas > 0 else ""
        return f"kafka-topics.sh --create --topic {self.name} --partitions {writers + 1} {copies}{settings}"


def existing(admin: Any, topics: Collection[str], patience: float) -> set[str]:
    """The topics among these that have not been deleted."""
    return set(topics) & set(answered(admin, lambda: admin.list_topics(timeout=ANSWER), patience).topics)


def topics_in(value: bytes | None) -> set[str]:
    """The topics that a marker of a whole epoch names.

    >>> sorted(topics_in(b'{"epoch": 3, "ends": {"b": [4, 5], "a": [1]}, "watermark": null}')), topics_in(None)
    (['a', 'b'], set())
    """
    return set() if value is None else set(json.loads(value).get("ends", ()))


def _differs(found: Marker, newest: TransactionId) -> bool:
    """Whether the epoch was published by a later takeover than the record's, or by another run of the same one."""
    takeover = int(found.name.partition("-")[0])
    return takeover > newest.takeover or (
        takeover == newest.takeover and bool(found.run and newest.run) and found.run != newest.run
    )


def topic_setting(admin: Any, topic: str, name: str, patience: float) -> str | None:
    """A setting of a topic; None if this user may not read it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def ask() -> Any:
        return admin.describe_configs([resource], request_timeout=ANSWER)[resource].result()

    try:
        found = answered(admin, ask, patience)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        return None
    return str(found[name].value)
