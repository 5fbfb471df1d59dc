"""Properties of librdkafka as the options ``kafka.…`` give them, for the Kafka source and the Kafka sink alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import confluent_kafka

from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import Options

PREFIX = "kafka."
"""Start of the names of options that go to librdkafka."""

_JAVAS = {
    "sasl.jaas.config": f"use {PREFIX}sasl.username and {PREFIX}sasl.password",
    "ssl.truststore.location": f"use {PREFIX}ssl.ca.location, a PEM file",
    "ssl.truststore.password": f"use {PREFIX}ssl.ca.location, a PEM file",
    "ssl.truststore.type": f"use {PREFIX}ssl.ca.location, a PEM file",
}
"""What Java's client calls so, and librdkafka otherwise."""
_COMMON = (
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location",
    "client.id",
)  # fmt: skip
_SECRET = re.compile(r"password|secret|token|passphrase|key\.pem$|oauthbearer\.config")
# The narrowest of spark.redaction.regex as Spark's versions come.
_REDACTED = re.compile(r"(?i)secret|password|token|access[.]?key")
_REFUSALS = (confluent_kafka.KafkaException, TypeError, ValueError)
"""What a client raises whose properties are wrong."""


def given(options: Options, ours: Mapping[str, str]) -> dict[str, str]:
    """The properties among some options.

    Args:
        options: What the user said.
        ours: Properties that are not the user's, and why.

    Raises:
        AnalysisError: One of those is given.
    """
    properties = options.beginning_with(PREFIX)
    for name in properties:
        if name in ours:
            message = f"option: {PREFIX}{name}: leave it out; {ours[name]}."
            raise AnalysisError(message)
        if name in _JAVAS:
            message = f"option: {PREFIX}{name} is of Java's client, and this is librdkafka: {_JAVAS[name]}."
            raise AnalysisError(message)
    return properties


def check(properties: Mapping[str, str], make: Callable[[], object], known: Iterable[str]) -> None:
    """Have librdkafka check properties, before anything is connected: only it knows them all.

    Args:
        properties: What the user said.
        make: Makes a client with them.
        known: Names to suggest one of where one is misspelt.

    Raises:
        AnalysisError: Naming the property that it does not accept, and never what a secret one says.
    """
    try:
        make()
    except _REFUSALS as error:
        # Without its cause: what librdkafka says quotes values.
        raise AnalysisError(_refused(properties, error, known)) from None


def redacted(text: str, properties: Mapping[str, str]) -> str:
    """A text in which nothing is left of the properties that are secret by their names.

    >>> redacted("no such user: hunter2", {"sasl.password": "hunter2"})
    'no such user: ***'
    """
    secrets = [value for name, value in properties.items() if value and _SECRET.search(name)]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def printed(name: str) -> bool:
    """Whether Spark, which redacts by names, would print a property in plans that we take for a secret.

    >>> printed("ssl.key.pem"), printed("sasl.password"), printed("client.id")
    (True, False, False)
    """
    return _SECRET.search(name) is not None and _REDACTED.search(name) is None


def _refused(properties: Mapping[str, str], together: Exception, known: Iterable[str]) -> str:
    for name, value in properties.items():
        try:
            # A producer knows the properties of consumers too; it would log that it does not need them.
            confluent_kafka.Producer({name: value, "log_level": "0"})
        except _REFUSALS as error:
            if "No such configuration property" in str(error):
                return f"option: {PREFIX}{name}: librdkafka has no such property; {nearest(name, {*known, *_COMMON})}"
            # Alone, a protocol lacks what others say.
            if "Failed to create" not in str(error):
                return f"option: {PREFIX}{name}: librdkafka does not accept its value. See its list of properties."
    said = together.args[0].str() if isinstance(together, confluent_kafka.KafkaException) else str(together)
    listed = ", ".join(f"{PREFIX}{name}" for name in sorted(properties))
    return f"option: librdkafka does not accept {listed} together: {redacted(said, properties)}"
