"""Settings of the Kafka source, from the options of ``readStream``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException

from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import Options
from sparkjet.sources.kafka.starting import Starting
from sparkjet.sources.kafka.subscription import Subscription

CLIENT = "kafka."
"""Start of the names of options that go to the client."""

KAFKA_SOURCE_OPTIONS: Mapping[str, str] = {
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
"""Options of ``format("sparkjet-kafka")``, named as those of Spark's source; ``kafka.…`` goes to the client."""

_OURS = {
    "auto.offset.reset": "Use startingOffsets.",
    "enable.auto.commit": "Offsets are in the query's record, not in Kafka.",
    "enable.auto.offset.store": "Offsets are in the query's record, not in Kafka.",
    "enable.partition.eof": "The source needs it.",
    "key.deserializer": "Keys come as binary; cast the column.",
    "value.deserializer": "Values come as binary; cast the column.",
    "group.instance.id": "Partitions are assigned by Spark, not by a group.",
    "partition.assignment.strategy": "Partitions are assigned by Spark, not by a group.",
    # Spark redacts by name what it prints of a plan, and would not know this one.
    "ssl.key.pem": "Spark would print it in plans. Put the key into a file: kafka.ssl.key.location.",
    # What Java's client calls so.
    "sasl.jaas.config": "The client is librdkafka: use kafka.sasl.username and kafka.sasl.password.",
    "ssl.truststore.location": "The client is librdkafka: use kafka.ssl.ca.location, a PEM file.",
    "ssl.truststore.password": "The client is librdkafka: use kafka.ssl.ca.location, a PEM file.",
    "ssl.truststore.type": "The client is librdkafka: use kafka.ssl.ca.location, a PEM file.",
}
_SECRET = re.compile(r"password|secret|token|passphrase|\.pem$|oauthbearer\.config")
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
        known = [*KAFKA_SOURCE_OPTIONS, f"{CLIENT}bootstrap.servers"]
        lowered = {name.lower() for name in known}
        for name in given:
            if name.lower() not in lowered and not name.lower().startswith(CLIENT):
                message = f'option: "{name}" is no option of format("sparkjet-kafka"); {nearest(name, known)}'
                raise AnalysisError(message)
        options = Options(given)
        limit = options.get("maxOffsetsPerTrigger")
        return KafkaSourceSettings(
            Subscription.of(options),
            Starting.of(options),
            _client(given),
            None if limit is None else options.number("maxOffsetsPerTrigger", default=1),
            options.flag("failOnDataLoss", default=True),
            options.flag("includeHeaders"),
            options.number("kafkaConsumer.pollTimeoutMs", default=120_000) / 1000,
        )

    def shown(self, text: object) -> str:
        """A text of the client's without anything secret."""
        return redacted(str(text), self.client)


def redacted(text: str, client: Mapping[str, str]) -> str:
    """A text in which no secret of a client's configuration is left.

    >>> redacted("no such user: hunter2", {"sasl.password": "hunter2"})
    'no such user: ***'
    """
    secrets = [value for name, value in client.items() if value and _SECRET.search(name)]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _client(given: Mapping[str, str]) -> dict[str, str]:
    # Java's client has no property in capitals either, and Spark has lowered the names already.
    client = {name.lower().removeprefix(CLIENT): str(value) for name, value in given.items() if _is_client(name)}
    if not client.get("bootstrap.servers"):
        message = 'option: format("sparkjet-kafka") needs kafka.bootstrap.servers="<host>:<port>,…".'
        raise AnalysisError(message)
    for name in client:
        if name in _OURS:
            message = f"option: {CLIENT}{name} cannot be set. {_OURS[name]}"
            raise AnalysisError(message)
    complete = {**_DEFAULTS, **_QUIET, **client, **_FIXED}
    try:
        # Only librdkafka knows all its properties, and says it here; nothing is connected before the first question.
        Consumer(complete, logger=logging.getLogger("sparkjet.kafka")).close()
    except KafkaException as error:
        message = f"option: {redacted(error.args[0].str(), client)} (options {CLIENT}… go to librdkafka)."
        raise AnalysisError(message) from None
    return complete


def _is_client(name: str) -> bool:
    # Spark's own option has the same letters, and no dot after them.
    return name.lower().startswith(CLIENT)
