"""Settings of the Kafka sink, from the options of ``writeStream``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import confluent_kafka

from sparkjet.connectors.kafka import properties as kafka_properties
from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.options import (
    NUM_PARTITIONS,
    ON_LOST_TRANSACTION,
    ON_RESTORED_BACKUP,
    PREFIX,
    PROGRESS_TOPIC,
    TOPIC,
)
from sparkjet.connectors.kafka.producing import NAME, NAMES
from sparkjet.errors import AnalysisError
from sparkjet.options import PROCESSING_GUARANTEE, PROGRESS_INTERVAL
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from sparkjet.options import Options

TIMEOUT = "transaction.timeout.ms"
DEFAULTS = {
    # The default of Java's producers, and so of Spark's Kafka sink: a key stays in its partition.
    "partitioner": "murmur2_random",
    # As Java's delivery.timeout.ms: librdkafka would retry until the transaction has timed out.
    "message.timeout.ms": "120000",
    "linger.ms": "20",
    # The most that brokers allow by default.
    TIMEOUT: "900000",
}
_NUMBERS = {
    TIMEOUT: "milliseconds",
    "message.timeout.ms": "milliseconds",
    "message.max.bytes": "bytes",
    "batch.size": "bytes",
}
"""Properties that sparkjet calculates with."""
_NUMBER = re.compile(r"[1-9][0-9]*")
OURS = {
    "transactional.id": "sparkjet names its transactions itself, so that every driver can find them",
    "enable.idempotence": "sparkjet always enables it",
    "acks": "a transaction needs acks=all",
    "delivery.report.only.error": "sparkjet needs it",
    "queue.buffering.max.messages": "sparkjet bounds what waits for the brokers itself",
    "queue.buffering.max.kbytes": "sparkjet bounds what waits for the brokers itself",
    "key.serializer": "cast the column key to string or binary",
    "value.serializer": "cast the column value to string or binary",
}


@dataclass(frozen=True)
class KafkaSettings:
    """The parsed options.

    Attributes:
        access: How to connect, for the requests that sparkjet itself sends.
        producer: librdkafka's properties for producers; include the password and are never shown.
        topic: The option ``topic``, which takes precedence over a column of that name.
        writers: The option ``numPartitions``.
        continues: Whether to continue when rows are lost (``onLostTransaction``).
        guarantee: Exactly once in transactions, or at least once without.
        repeats: Whether to continue from snapshots that are older than the topic (``onRestoredBackup``).
        progress: The option ``progressTopic``; without it there are no markers.
        client: librdkafka's properties for clients that only ask and read; never shown.
        progress_interval: The option ``progressInterval``, in microseconds.
    """

    access: Access
    producer: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    writers: int = 16
    continues: bool = False
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    repeats: bool = False
    progress: str | None = None
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    progress_interval: int | None = None

    @property
    def timeout(self) -> int:
        """Milliseconds after which brokers abort an open transaction."""
        return int(self.producer[TIMEOUT])

    @staticmethod
    def of(options: Options) -> KafkaSettings:
        """The settings in some options."""
        given = kafka_properties.properties_of(options, OURS)
        access = Access.of(given)
        guarantee = guarantee_of(options)
        promises = guarantee if guarantee is Guarantee.EXACTLY_ONCE else Guarantee.AT_LEAST_ONCE
        progress = progress_topic(options)
        if progress and promises is not Guarantee.EXACTLY_ONCE:
            message = (
                "progressTopic: rows that are written at least once are there before their epoch is decided, so no "
                "marker says where it ends: leave it out."
            )
            raise AnalysisError(message)
        if options[PROGRESS_INTERVAL] is not None and not progress:
            message = (
                "progressInterval: with commit=prepared there are no markers without progressTopic. Name "
                'their topic with option("progressTopic", "…"), or leave this option out.'
            )
            raise AnalysisError(message)
        return KafkaSettings(
            access,
            producer_properties({**DEFAULTS, **given}, in_transactions=promises is Guarantee.EXACTLY_ONCE),
            options[TOPIC],
            options[NUM_PARTITIONS],
            options[ON_LOST_TRANSACTION] == "continue",
            promises,
            options[ON_RESTORED_BACKUP] == "continue",
            progress,
            # Clients would log which properties are for producers only.
            {**given, "log_level": "0"},
            options[PROGRESS_INTERVAL],
        )


def progress_topic(options: Options) -> str | None:
    """The option ``progressTopic``.

    Raises:
        AnalysisError: It is the topic of the rows, or no topic's name.
    """
    topic, progress = options[TOPIC], options[PROGRESS_TOPIC]
    if progress and progress == topic:
        message = f'progressTopic: "{progress}" is the topic of the rows, whose readers would get the markers too.'
        raise AnalysisError(message)
    if progress and not NAME.fullmatch(progress):
        raise AnalysisError(f'progressTopic: "{progress}" cannot be the name of a topic: {NAMES}.')
    return progress


def guarantee_of(options: Options) -> Guarantee:
    """The guarantee that the user asks for."""
    return Guarantee(options[PROCESSING_GUARANTEE])


def producer_properties(properties: dict[str, str], *, in_transactions: bool) -> dict[str, str]:
    """Properties of librdkafka's producers, from the user's and the defaults."""
    for name, unit in _NUMBERS.items():
        # librdkafka also accepts 0x10 and 010, as C does: sparkjet would calculate with another number, or fail.
        if name in properties and not (_NUMBER.fullmatch(properties[name]) and int(properties[name]) < 2**31):
            raise AnalysisError(f'{PREFIX}{name}: "{properties[name]}" is not a number of {unit}.')
    # librdkafka rejects a message timeout longer than the transaction's.
    patience = min(int(properties["message.timeout.ms"]), int(properties[TIMEOUT]))
    made = {
        **properties,
        "message.timeout.ms": str(patience),
        "enable.idempotence": "true",
        "queue.buffering.max.messages": "10000000",
        "queue.buffering.max.kbytes": "2147483647",
    }
    # No log: it starts to connect, and the check with the brokers reports whether that works.
    whole = {**made, "log_level": "0", **({"transactional.id": "sparkjet"} if in_transactions else {})}
    kafka_properties.check_properties(
        properties, lambda: confluent_kafka.Producer(whole), (*DEFAULTS, "compression.type")
    )
    return made
