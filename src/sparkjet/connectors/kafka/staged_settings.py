"""Settings of the Kafka sink with ``commit=staged``, from the options of ``writeStream``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import confluent_kafka

from sparkjet.connectors.kafka import properties as kafka_properties
from sparkjet.connectors.kafka.access import Access, servers_of
from sparkjet.connectors.kafka.options import (
    NUM_PARTITIONS,
    ON_LOST_TRANSACTION,
    ON_RESTORED_BACKUP,
    TOPIC,
)
from sparkjet.connectors.kafka.producer_settings import (
    DEFAULTS,
    OURS,
    TIMEOUT,
    guarantee_of,
    producer_properties,
    progress_topic,
)
from sparkjet.connectors.kafka.publishing import READER
from sparkjet.errors import AnalysisError
from sparkjet.options import PROGRESS_INTERVAL
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from sparkjet.options import Options

_MOST_PARTS = 9_999
"""With the partition of the epochs' markers, as many as brokers create at once."""
_SHORT = "60000"
"""No transaction waits for a decision: its timeout only limits how long a crash may hold readers back."""


@dataclass(frozen=True)
class StagedSettings:
    """The parsed options.

    Attributes:
        producer: librdkafka's properties for producers; include the password and are never shown.
        client: The same for clients that only ask and read.
        access: How sparkjet itself connects; None if it cannot do what librdkafka can (OAuth, Kerberos).
        topic: The option ``topic``, which takes precedence over a column of that name.
        writers: The option ``numPartitions``.
        progress: The option ``progressTopic``.
        repeats: Whether to continue from snapshots that are older than the progress topic, or newer.
        few: The most rows of an epoch that is one part.
        progress_interval: The option ``progressInterval``, in microseconds.
    """

    producer: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    access: Access | None = field(default=None, repr=False)
    topic: str | None = None
    writers: int = 16
    progress: str | None = None
    repeats: bool = False
    few: int = 200_000
    progress_interval: int | None = None

    @property
    def timeout(self) -> float:
        """Seconds after which brokers abort an open transaction."""
        return int(self.producer[TIMEOUT]) / 1000

    @property
    def longest(self) -> float:
        """Seconds after which a transaction takes no more rows: the rest is for rows under way."""
        return self.timeout / 4

    @property
    def patience(self) -> float:
        """Seconds to wait for open transactions of others: brokers look for old ones every ten seconds."""
        return self.timeout + 15

    @property
    def takes(self) -> int:
        """The largest message that librdkafka takes."""
        return int(self.producer.get("message.max.bytes", "1000000"))

    def producer_for(self, largest: int | None) -> Mapping[str, str]:
        """The producers' properties for a topic that takes batches of at most ``largest`` bytes, None if not known."""
        size = int(self.producer.get("batch.size", "1000000"))
        # librdkafka does not divide a batch that a broker refuses: decided rows would never be taken.
        return self.producer if largest is None or size <= largest else {**self.producer, "batch.size": str(largest)}

    @property
    def compresses(self) -> bool:
        """Whether a message may be smaller than its rows by the time brokers check its size."""
        names = ("compression.type", "compression.codec")
        # librdkafka also accepts " NONE": rows that brokers refuse would be decided.
        return any(self.producer.get(name, "none").strip().lower() != "none" for name in names)

    def progress_topic(self, query: str, sink: str) -> str:
        """The topic of the markers."""
        return self.progress or re.sub(r"[^\w.-]", "_", f"sparkjet-progress-{query}-{sink}", flags=re.ASCII)

    @staticmethod
    def of(options: Options) -> StagedSettings:
        """The settings in some options."""
        given = kafka_properties.properties_of(options, OURS)
        if guarantee_of(options) is not Guarantee.EXACTLY_ONCE:
            raise AnalysisError("commit: staged is for processingGuarantee=exactly-once; leave commit out for others.")
        if ON_LOST_TRANSACTION in options:
            message = (
                "onLostTransaction: this is for commit=prepared. With commit=staged, the default, no rows wait in the "
                "brokers, where they could be lost: leave it out."
            )
            raise AnalysisError(message)
        progress = progress_topic(options)
        if options[NUM_PARTITIONS] > _MOST_PARTS:
            raise AnalysisError(f"option: numPartitions must be {_MOST_PARTS} at most, not {options[NUM_PARTITIONS]}.")
        producer = producer_properties({**DEFAULTS, TIMEOUT: _SHORT, **given}, in_transactions=True)
        # Clients would log which properties are for producers only.
        client = {**given, "log_level": "0"}
        # Producers accept consumers' properties unchecked; the first reader of markers is created after a decision.
        kafka_properties.check_properties(given, lambda: confluent_kafka.Consumer({**client, **READER}), ())
        return StagedSettings(
            producer,
            client,
            _access(given),
            options[TOPIC],
            options[NUM_PARTITIONS],
            progress,
            options[ON_RESTORED_BACKUP] == "continue",
            progress_interval=options[PROGRESS_INTERVAL],
        )


def _access(given: Mapping[str, str]) -> Access | None:
    servers_of(given)
    try:
        return Access.of(given)
    except AnalysisError:
        # Publishing needs only librdkafka, which has already reported whatever is wrong for it, too.
        return None
