"""Settings of the Kafka sink, from the options of ``writeStream``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import confluent_kafka

from sparkjet.connect import kafka_properties
from sparkjet.errors import AnalysisError
from sparkjet.sinks.kafka.access import Access
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from sparkjet.options import Options

TIMEOUT = "transaction.timeout.ms"
_DEFAULTS = {
    # As Java's producers choose, and with them Spark's own sink: a key stays in its partition.
    "partitioner": "murmur2_random",
    # As Java's delivery.timeout.ms: librdkafka would try until the transaction has timed out.
    "message.timeout.ms": "120000",
    "linger.ms": "20",
    # The longest that brokers allow as they come.
    TIMEOUT: "900000",
}
_OURS = {
    "transactional.id": "sparkjet names its transactions itself, so that every driver can find them",
    "enable.idempotence": "sparkjet always switches it on",
    "acks": "a transaction needs all of them",
    "delivery.report.only.error": "sparkjet needs it",
    "queue.buffering.max.messages": "sparkjet bounds what waits for the brokers itself",
    "queue.buffering.max.kbytes": "sparkjet bounds what waits for the brokers itself",
    "key.serializer": "cast the column key to string or binary",
    "value.serializer": "cast the column value to string or binary",
}


@dataclass(frozen=True)
class KafkaSettings:
    """What the options say.

    Attributes:
        access: How to connect, for what is sent by ourselves.
        producer: librdkafka's properties for producers; hold the password and are never shown.
        topic: The option ``topic``, which wins over a column of that name.
        writers: The option ``numPartitions``.
        continues: Whether to go on when rows are lost (``onLostTransaction``).
        guarantee: Exactly once in transactions, or at least once without.
        repeats: Whether to go on from snapshots that are older than what the topic has (``onRestoredBackup``).
    """

    access: Access
    producer: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    writers: int = 16
    continues: bool = False
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    repeats: bool = False

    @property
    def timeout(self) -> int:
        """Milliseconds after which brokers roll an open transaction back."""
        return int(self.producer[TIMEOUT])

    @staticmethod
    def of(options: Options) -> KafkaSettings:
        """The settings behind some options.

        Raises:
            AnalysisError: Naming an option that is missing or wrong, and never what a secret one says.
        """
        given = kafka_properties.given(options, _OURS)
        access = Access.of(given)
        guarantee = Guarantee(options.choice("processingGuarantee", tuple(g.value for g in Guarantee), "exactly-once"))
        promises = guarantee if guarantee is Guarantee.EXACTLY_ONCE else Guarantee.AT_LEAST_ONCE
        return KafkaSettings(
            access,
            _producer({**_DEFAULTS, **given}, in_transactions=promises is Guarantee.EXACTLY_ONCE),
            options.get("topic"),
            options.number("numPartitions", default=16),
            options.choice("onLostTransaction", ("fail", "continue"), "fail") == "continue",
            promises,
            options.choice("onRestoredBackup", ("fail", "continue"), "fail") == "continue",
        )


def _producer(properties: dict[str, str], *, in_transactions: bool) -> dict[str, str]:
    for name in (TIMEOUT, "message.timeout.ms"):
        if not properties[name].isdecimal() or not 0 < int(properties[name]) < 2**31:
            message = f'{kafka_properties.PREFIX}{name}: "{properties[name]}" is no number of milliseconds.'
            raise AnalysisError(message)
    # librdkafka refuses a message that may live longer than its transaction.
    patience = min(int(properties["message.timeout.ms"]), int(properties[TIMEOUT]))
    made = {
        **properties,
        "message.timeout.ms": str(patience),
        "enable.idempotence": "true",
        "queue.buffering.max.messages": "10000000",
        "queue.buffering.max.kbytes": "2147483647",
    }
    # No log: it begins to connect, and whether it can is told by what we ask the brokers ourselves.
    whole = {**made, "log_level": "0", **({"transactional.id": "sparkjet"} if in_transactions else {})}
    kafka_properties.check(properties, lambda: confluent_kafka.Producer(whole), (*_DEFAULTS, "compression.type"))
    return made
