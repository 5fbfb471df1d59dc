"""Settings of the Kafka source, from the options of ``readStream``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from sparkjet.connectors.kafka import properties as kafka_properties
from sparkjet.connectors.kafka.formats.settings import Formats
from sparkjet.connectors.kafka.options import (
    ASSIGN,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    MAX_OFFSETS,
    POLL_TIMEOUT,
    PREFIX,
    SOURCE_NAME,
    SOURCE_OPTIONS,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    WRITERS_TOPICS,
)
from sparkjet.connectors.kafka.positions import TopicPartition, parsed
from sparkjet.connectors.kafka.starting import Starting
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.alignment import MAX_DRIFT, check_limited

_OURS = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are in the query's record, not in Kafka",
    "enable.auto.offset.store": "offsets are in the query's record, not in Kafka",
    "enable.partition.eof": "the source needs it",
    "key.deserializer": "keys come as binary, or as key.format says",
    "value.deserializer": "values come as binary, or as value.format says",
    "group.instance.id": "partitions are assigned by Spark, not by a group",
    "partition.assignment.strategy": "partitions are assigned by Spark, not by a group",
}
_INSTEAD = {
    "ssl.key.pem": "Put the key into a file: kafka.ssl.key.location",
    "sasl.oauthbearer.assertion.private.key.pem": "Use a file: kafka.sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase": "Use a key without one, in a file that only its user may read",
    "sasl.oauthbearer.config": "See kafka.sasl.oauthbearer.method=oidc and kafka.sasl.oauthbearer.client.secret",
}
"""Substitutes for properties that Spark would show in plans."""
_DEFAULTS = {
    "group.id": "sparkjet-kafka-source",
    "isolation.level": "read_committed",
    "fetch.message.max.bytes": "8388608",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "65536",
    # The records of a range are already there, so the broker must not wait for more: the end of a partition, after
    # which only transaction markers follow, is reported by the fetch after the last record.
    "fetch.wait.max.ms": "10",
    # While its queue is full librdkafka does not fetch, and by default it looks again after a second: a task that has
    # emptied the queue before would stand still until then.
    "fetch.queue.backoff.ms": "5",
}
_FIXED = {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.partition.eof": "true"}
# Errors arrive through the callback; the log would repeat them on every worker's stderr.
_QUIET = {"log_level": "0"}
_WAYS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)


@dataclass(frozen=True)
class Subscription:
    """The option ``subscribe``, ``subscribePattern`` or ``assign``.

    >>> Subscription(pattern="click.*").chosen({"clicks": [0, 1], "trades": [0]})
    [('clicks', 0), ('clicks', 1)]
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @staticmethod
    def of(options: Options) -> Subscription:
        """The subscription in some options."""
        given = [(way.name, text) for way in _WAYS if (text := options.get(way)) is not None]
        if len(given) != 1:
            found = ", ".join(way for way, _ in given) or "none of them"
            ways = ", ".join(way.name for way in _WAYS)
            raise AnalysisError(f'option: give exactly one of {ways}, e.g. subscribe="clicks"; found {found}.')
        way, text = given[0]
        if way == SUBSCRIBE.name:
            topics = tuple(name for part in text.split(",") if (name := part.strip()))
            if not topics:
                message = (
                    f'option: subscribe="{text}" names no topic; separate names with commas, e.g. "clicks,trades".'
                )
                raise AnalysisError(message)
            return Subscription(topics=topics)
        if way == SUBSCRIBE_PATTERN.name:
            try:
                re.compile(text)
            except re.error as error:
                message = f'option: subscribePattern="{text}" is not a regular expression: {error}.'
                raise AnalysisError(message) from error
            return Subscription(pattern=text)
        return Subscription(assigned=_assigned(text))

    def chosen(self, cluster: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
        """The partitions of a cluster that are read, in order.

        A pattern must match the whole topic name; it never matches Kafka's internal topics (``__…``).
        """
        if self.assigned:
            return sorted(each for each in self.assigned if each[1] in cluster.get(each[0], ()))
        if self.pattern is None:
            topics = [topic for topic in self.topics if topic in cluster]
        else:
            expression = re.compile(self.pattern)
            topics = [name for name in cluster if expression.fullmatch(name) and not name.startswith("__")]
        return sorted((topic, partition) for topic in topics for partition in cluster[topic])

    def check(self, cluster: Mapping[str, Sequence[int]]) -> None:
        """Reject named topics and partitions that do not exist."""
        missing = [topic for topic in self.topics if topic not in cluster]
        missing += [f"{name}-{number}" for name, number in self.assigned if number not in cluster.get(name, ())]
        if missing:
            way = "assign" if self.assigned else "subscribe"
            message = (
                f"option: {way} names {', '.join(missing)}, which the cluster does not have (or hides from this user). "
                "Create it first, or use subscribePattern for topics that are created later."
            )
            raise AnalysisError(message)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"clicks": [0, 1]}'
    found = parsed("assign", text, example)
    if not found or not all(isinstance(each, list) and each for each in found.values()):
        raise AnalysisError(f"option: assign={text!r} names no partitions; write e.g. {example}.")
    partitions = [(topic, partition) for topic, each in found.items() for partition in each]
    for _, partition in partitions:
        if type(partition) is not int or partition < 0:
            raise AnalysisError(f"option: assign={text!r} has {partition!r} as a partition; write e.g. {example}.")
    return tuple(sorted(set(partitions)))


@dataclass(frozen=True)
class KafkaSourceSettings:
    """The parsed options.

    Attributes:
        subscription: The partitions to read.
        starting: Where a new query starts.
        client: librdkafka's properties for consumers; include the password and are never shown.
        max_offsets: The option ``maxOffsetsPerTrigger``.
        fail_on_data_loss: The option of the same name.
        headers: The option ``includeHeaders``.
        progress_topics: The option ``progressTopic``.
        patience: Seconds to wait for a broker.
        max_drift: The option ``maxWatermarkDrift``, in microseconds.
        formats: How keys and values are decoded.
    """

    subscription: Subscription
    starting: Starting
    client: Mapping[str, str] = field(repr=False)
    max_offsets: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    progress_topics: tuple[str, ...] = ()
    patience: float = 120.0
    max_drift: int | None = None
    formats: Formats = field(default_factory=Formats)

    @staticmethod
    def of(given: Mapping[str, str]) -> KafkaSourceSettings:
        """The settings in the options of a reader; does not connect."""
        options = Options(given)
        options.only(SOURCE_OPTIONS, SOURCE_NAME)
        check_limited(options[MAX_DRIFT], options[MAX_OFFSETS], MAX_OFFSETS.name)
        subscription = Subscription.of(options)
        topics = [*subscription.topics, *sorted({topic for topic, _ in subscription.assigned})]
        return KafkaSourceSettings(
            subscription,
            Starting.of(options),
            _client(options),
            options[MAX_OFFSETS],
            options[FAIL_ON_DATA_LOSS],
            options[INCLUDE_HEADERS],
            options[WRITERS_TOPICS],
            options[POLL_TIMEOUT] / 1000,
            options[MAX_DRIFT],
            Formats.of(options, topics),
        )

    @property
    def committed(self) -> bool:
        """Whether only committed records are read (``kafka.isolation.level``)."""
        # librdkafka takes " READ_COMMITTED" too: the latest offset would be behind rows that are still to be committed.
        return self.client["isolation.level"].strip().lower() == "read_committed"

    def shown(self, text: object) -> str:
        """A text of the client, with secrets redacted."""
        return kafka_properties.redacted(str(text), self.client)


def _client(options: Options) -> dict[str, str]:
    given = kafka_properties.properties_of(options, _OURS)
    if not given.get("bootstrap.servers"):
        message = f'option: format("{SOURCE_NAME}") needs option("{PREFIX}bootstrap.servers", "host:port, …").'
        raise AnalysisError(message)
    for name in given:
        if kafka_properties.escapes_redaction(name):
            hint = _INSTEAD.get(name, "Put it into a file, if librdkafka has a property for one")
            raise AnalysisError(f"option: {PREFIX}{name}: leave it out; Spark would show it in plans. {hint}.")
    complete = {**_DEFAULTS, **_QUIET, **given, **_FIXED}
    kafka_properties.check_properties(
        given, lambda: Consumer(complete, logger=logging.getLogger("sparkjet.kafka")).close(), _DEFAULTS
    )
    return complete
