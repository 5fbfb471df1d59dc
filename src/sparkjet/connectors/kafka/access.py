"""Access: where the brokers are and how to authenticate, from librdkafka's properties."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkjet.connectors.kafka.requests import Node
from sparkjet.connectors.kafka.scram import HASHES
from sparkjet.errors import AnalysisError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", *HASHES)
_DEFAULT_PORT, _LAST_PORT = 9092, 65_535
_SUPPORTED = {
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}


@dataclass(frozen=True)
class Access:
    """How to connect; created by :meth:`of`.

    Attributes:
        servers: Brokers to ask first, from ``bootstrap.servers``.
        properties: librdkafka's properties, secrets included; never shown.
    """

    servers: tuple[Node, ...]
    properties: Mapping[str, str] = field(repr=False)

    @staticmethod
    def of(properties: Mapping[str, str]) -> Access:
        """The access described by some properties, which both librdkafka and sparkjet must support."""
        for name in properties:
            if name.startswith(("ssl.", "sasl.")) and name not in _SUPPORTED:
                message = (
                    f"kafka.{name}: sparkjet itself connects to the brokers too, before the start and for commits, "
                    "and does not support this property. It supports "
                    f"{', '.join(f'kafka.{each}' for each in sorted(_SUPPORTED))}, with PEM files."
                )
                raise AnalysisError(message)
        access = Access(servers_of(properties), dict(properties))
        if access.protocol not in PROTOCOLS:
            raise AnalysisError(f'kafka.security.protocol: "{access.protocol}" is not one of {", ".join(PROTOCOLS)}.')
        if access.uses_sasl and access.mechanism not in MECHANISMS:
            message = (
                f'kafka.sasl.mechanism: "{access.mechanism}" is not one of {", ".join(MECHANISMS)}, which sparkjet '
                "itself can use with the brokers, before the start and for commits."
            )
            raise AnalysisError(message)
        if access.uses_sasl and not {"sasl.username", "sasl.password"} <= properties.keys():
            message = f"kafka.sasl.mechanism={access.mechanism} needs kafka.sasl.username and kafka.sasl.password."
            raise AnalysisError(message)
        if access.uses_tls:
            access.tls()
        return access

    @property
    def protocol(self) -> str:
        """The security protocol: one of :data:`PROTOCOLS`, once checked."""
        return self.properties.get("security.protocol", "PLAINTEXT").upper()

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections are authenticated with SASL."""
        return self.protocol.startswith("SASL")

    @property
    def mechanism(self) -> str:
        """The SASL mechanism: one of :data:`MECHANISMS`, once checked."""
        return self.properties.get("sasl.mechanism", self.properties.get("sasl.mechanisms", "")).upper()

    def tls(self) -> ssl.SSLContext:
        """A TLS context for encrypted connections."""
        given = self.properties
        try:
            context = ssl.create_default_context(cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem"))
            if "ssl.certificate.location" in given:
                context.load_cert_chain(
                    given["ssl.certificate.location"],
                    given.get("ssl.key.location"),
                    # A function instead of None: Python would prompt for a missing password on the terminal.
                    lambda: given.get("ssl.key.password", ""),
                )
        except (OSError, ValueError) as error:
            message = (
                "kafka.ssl.*: a file of certificates or keys cannot be read, is not in PEM format, or its password is "
                f"wrong ({type(error).__name__})."
            )
            raise AnalysisError(message) from None
        if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def servers_of(properties: Mapping[str, str]) -> tuple[Node, ...]:
    """The brokers to ask first."""
    found = []
    for each in filter(None, (part.strip() for part in properties.get("bootstrap.servers", "").split(","))):
        host, colon, port = each.rpartition("://")[2].rpartition(":")
        if not colon or port.endswith("]"):
            host, port = each.rpartition("://")[2], str(_DEFAULT_PORT)
        host = host.strip("[]")
        if not _is_host(host) or not port.isdecimal() or int(port) > _LAST_PORT:
            raise AnalysisError(f'kafka.bootstrap.servers: "{each}" is not host:port.')
        found.append(Node(host, int(port)))
    if not found:
        raise AnalysisError('kafka.bootstrap.servers names no broker. Give it as "host:port, …".')
    return tuple(found)


def _is_host(name: str) -> bool:
    """Whether a name can be resolved at all: Python encodes it as IDNA, which fails for two dots in a row."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True
