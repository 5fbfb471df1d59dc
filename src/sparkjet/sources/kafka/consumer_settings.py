"""Settings of the Kafka source, from the options of ``readStream``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from sparkjet.connect import kafka_properties
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.kafka.starting import Starting
from sparkjet.sources.kafka.subscription import Subscription

NAME = "sparkjet-kafka"
"""What ``readStream.format(…)`` calls the source."""

KAFKA_SOURCE_OPTIONS: Mapping[str, str] = {
    "kafka.*": "Properties of librdkafka, kafka.bootstrap.servers at least. Never logged or recorded.",
    "subscribe": "Topics, with commas.",
    "subscribePattern": "Regular expression that the whole name of a topic matches; new topics are found.",
    "assign": 'Partitions: {"topic": [0, 1]}.',
    "startingOffsets": 'Where a new query begins: latest (default), earliest or {"topic": {"0": 23, "1": -2}}.',
    "startingTimestamp": "The same by time, for all partitions: milliseconds since 1970.",
    "startingOffsetsByTimestamp": 'The same by time: {"topic": {"0": 1700000000000}}.',
    "startingOffsetsByTimestampStrategy": "Where nothing is as young as that: error (default) or latest.",
    "maxOffsetsPerTrigger": "About how many offsets a batch covers at most, shared by what each partition has left.",
    "failOnDataLoss": "Whether the query ends where what is to be read has gone (true), or goes on without it.",
    "includeHeaders": "Whether there is a column of headers (false).",
    "kafkaConsumer.pollTimeoutMs": "How long to wait for a broker that does not answer (120000).",
}
"""Options of ``format("sparkjet-kafka")``, named as those of Spark's source."""

_OURS = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are in the query's record, not in Kafka",
    "enable.auto.offset.store": "offsets are in the query's record, not in Kafka",
    "enable.partition.eof": "the source needs it",
    "key.deserializer": "keys come as binary, cast the column",
    "value.deserializer": "values come as binary, cast the column",
    "group.instance.id": "partitions are assigned by Spark, not by a group",
    "partition.assignment.strategy": "partitions are assigned by Spark, not by a group",
}
_INSTEAD = {
    "ssl.key.pem": "Put the key into a file: kafka.ssl.key.location",
    "sasl.oauthbearer.assertion.private.key.pem": "Use a file: kafka.sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase": "Use a key without one, in a file that only its user may read",
    "sasl.oauthbearer.config": "See kafka.sasl.oauthbearer.method=oidc and kafka.sasl.oauthbearer.client.secret",
}
"""What to use where Spark would print a secret."""
_DEFAULTS = {
    "group.id": "sparkjet-kafka-source",
    "isolation.level": "read_committed",
    "fetch.message.max.bytes": "8388608",
    "queued.min.messages": "200000",
    "queued.max.messages.kbytes": "65536",
    # What is read is there already: the broker is never to wait for more, and the end of a partition, after which
    # only the marks of transactions come, is told with the answer after the last one.
    "fetch.wait.max.ms": "10",
}
_FIXED = {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.partition.eof": "true"}
# Errors come through the callback; the log would repeat them on stderr of every worker.
_QUIET = {"log_level": "0"}


@dataclass(frozen=True)
class KafkaSourceSettings:
    """What the options say.

    Attributes:
        subscription: What is read.
        starting: Where a new query begins.
        client: How the client connects and reads; holds the password and is never shown.
        max_offsets: The option ``maxOffsetsPerTrigger``.
        fail_on_data_loss: The option of the same name.
        headers: The option ``includeHeaders``.
        patience: Seconds to wait for a broker.
    """

    subscription: Subscription
    starting: Starting
    client: Mapping[str, str] = field(repr=False)
    max_offsets: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    patience: float = 120.0

    @staticmethod
    def of(given: Mapping[str, str]) -> KafkaSourceSettings:
        """The settings behind the options of a reader; connects to nothing.

        Raises:
            AnalysisError: Naming an option that is missing, unknown or wrong, and never what a secret one says.
        """
        options = Options(given)
        options.only(list(KAFKA_SOURCE_OPTIONS), NAME)
        limit = options.get("maxOffsetsPerTrigger")
        return KafkaSourceSettings(
            Subscription.of(options),
            Starting.of(options),
            _client(options),
            None if limit is None else options.number("maxOffsetsPerTrigger", default=1),
            options.flag("failOnDataLoss", default=True),
            options.flag("includeHeaders"),
            options.number("kafkaConsumer.pollTimeoutMs", default=120_000) / 1000,
        )

    @property
    def committed(self) -> bool:
        """Whether only what was committed is read: ``kafka.isolation.level``."""
        return self.client["isolation.level"] == "read_committed"

    def shown(self, text: object) -> str:
        """A text of the client's without anything secret."""
        return kafka_properties.redacted(str(text), self.client)


def _client(options: Options) -> dict[str, str]:
    given = kafka_properties.given(options, _OURS)
    if not given.get("bootstrap.servers"):
        message = (
            f'option: format("{NAME}") needs option("{kafka_properties.PREFIX}bootstrap.servers", "host:port, …").'
        )
        raise AnalysisError(message)
    for name in given:
        if kafka_properties.printed(name):
            hint = _INSTEAD.get(name, "Put it into a file, if librdkafka takes one")
            message = f"option: {kafka_properties.PREFIX}{name}: leave it out; Spark would print it in plans. {hint}."
            raise AnalysisError(message)
    complete = {**_DEFAULTS, **_QUIET, **given, **_FIXED}
    kafka_properties.check(
        given, lambda: Consumer(complete, logger=logging.getLogger("sparkjet.kafka")).close(), _DEFAULTS
    )
    return complete
