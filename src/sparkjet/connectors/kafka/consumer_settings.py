"""Settings of the Kafka source, from the options of ``readStream``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from sparkjet.connectors.kafka import properties as kafka_properties
from sparkjet.connectors.kafka.formats.settings import Formats
from sparkjet.connectors.kafka.options import (
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    MAX_OFFSETS,
    POLL_TIMEOUT,
    PREFIX,
    SOURCE_NAME,
    SOURCE_OPTIONS,
    WRITERS_TOPICS,
)
from sparkjet.connectors.kafka.starting import Starting
from sparkjet.connectors.kafka.subscription import Subscription
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
"""What to use instead of properties that Spark would show in plans."""
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
            message = f"option: {PREFIX}{name}: leave it out; Spark would show it in plans. {hint}."
            raise AnalysisError(message)
    complete = {**_DEFAULTS, **_QUIET, **given, **_FIXED}
    kafka_properties.check_properties(
        given, lambda: Consumer(complete, logger=logging.getLogger("sparkjet.kafka")).close(), _DEFAULTS
    )
    return complete
