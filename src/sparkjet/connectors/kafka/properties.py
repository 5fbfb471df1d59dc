"""librdkafka's properties from the options ``kafka.…``, for both the Kafka source and the Kafka sink."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping

import confluent_kafka

from sparkjet.connectors.kafka.options import PREFIX
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import Options

_JAVA_ONLY = {
    "sasl.jaas.config": f"use {PREFIX}sasl.username and {PREFIX}sasl.password",
    "ssl.truststore.location": f"use {PREFIX}ssl.ca.location, a PEM file",
    "ssl.truststore.password": f"use {PREFIX}ssl.ca.location, a PEM file",
    "ssl.truststore.type": f"use {PREFIX}ssl.ca.location, a PEM file",
}
"""Properties of Java's client that librdkafka does not have."""
_COMMON = (
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "ssl.ca.location",
    "client.id",
)  # fmt: skip
_SECRET = re.compile(r"password|secret|token|passphrase|key\.pem$|oauthbearer\.config")
# The narrowest default of spark.redaction.regex among the supported versions of Spark.
_REDACTED = re.compile(r"(?i)secret|password|token|access[.]?key")
_REFUSALS = (confluent_kafka.KafkaException, AttributeError, TypeError, ValueError)
"""The errors of a client whose properties are invalid."""


def properties_of(options: Options, reserved: Mapping[str, str]) -> dict[str, str]:
    """The properties in some options."""
    properties = options.beginning_with(PREFIX)
    for name in properties:
        if name in reserved:
            raise AnalysisError(f"option: {PREFIX}{name}: leave it out; {reserved[name]}.")
        if name in _JAVA_ONLY:
            message = f"option: {PREFIX}{name} is a property of Java's client, not of librdkafka: {_JAVA_ONLY[name]}."
            raise AnalysisError(message)
    return properties


_UNHEARD = logging.getLogger("sparkjet.kafka")


def check_properties(properties: Mapping[str, str], make: Callable[[], object], known: Iterable[str]) -> None:
    """Have librdkafka check properties before anything connects: only librdkafka knows them all."""
    try:
        # Alone, as clients that only check are made to log nothing. With a logger that it is never asked to call: it
        # would tell the user on stderr that it has no broker.
        if "log_level" in properties:
            confluent_kafka.Producer({"log_level": properties["log_level"]}, logger=_UNHEARD)
        make()
    except _REFUSALS as error:
        # Without its cause: librdkafka's message quotes values.
        raise AnalysisError(_refused(properties, error, known)) from None


def redacted(text: str, properties: Mapping[str, str]) -> str:
    """A text in which the values of properties with secret names are replaced by ``***``.

    >>> redacted("no such user: hunter2", {"sasl.password": "hunter2"})
    'no such user: ***'
    """
    secrets = [value for name, value in properties.items() if value and _SECRET.search(name)]
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def escapes_redaction(name: str) -> bool:
    """Whether a property is a secret that Spark, which redacts options by name, would still show in plans.

    >>> escapes_redaction("ssl.key.pem"), escapes_redaction("sasl.password"), escapes_redaction("client.id")
    (True, False, False)
    """
    return _SECRET.search(name) is not None and _REDACTED.search(name) is None


def _refused(properties: Mapping[str, str], together: Exception, known: Iterable[str]) -> str:
    for name, value in properties.items():
        try:
            # A producer accepts the properties of consumers too, but would log that it does not need them.
            confluent_kafka.Producer({"log_level": "0", name: value})
        except _REFUSALS as error:
            if "No such configuration property" in str(error):
                return f"option: {PREFIX}{name}: librdkafka has no such property; {nearest(name, {*known, *_COMMON})}"
            # Alone, a security protocol may lack the properties it needs.
            if "Failed to create" not in str(error):
                return f"option: {PREFIX}{name}: librdkafka does not accept its value. See its list of properties."
    reason = together.args[0].str() if isinstance(together, confluent_kafka.KafkaException) else str(together)
    listed = ", ".join(f"{PREFIX}{name}" for name in sorted(properties))
    return f"option: librdkafka does not accept {listed} together: {redacted(reason, properties)}"
