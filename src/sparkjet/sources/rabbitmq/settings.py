"""Settings of the RabbitMQ source, from the options of ``readStream``."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import pika

from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sources.acknowledging.reader import READER_OPTIONS, ReaderSettings
from sparkjet.sources.rabbitmq.data_source import NAME

RABBITMQ_OPTIONS: Mapping[str, str] = {
    "queues": "Queues, separated by commas; each is a substream.",
    "host": "Host name of the broker (localhost).",
    "port": "Port of the broker (5672; 5671 with tls).",
    "virtualHost": "Virtual host (/).",
    "user": "User name (guest).",
    "password": "Password; never logged or recorded.",
    "tls": "Whether to connect over TLS (false).",
    "caFile": "tls: PEM file of the authorities to trust; the system's by default.",
    "certFile": "tls: PEM file of the client's certificate.",
    "keyFile": "tls: PEM file of its key.",
    "heartbeat": "Seconds after which broker and client take each other for dead (60).",
    **READER_OPTIONS,
}
"""Options of ``format("sparkjet-rabbitmq")``."""
_MOST_UNACKNOWLEDGED = 65_535
"""AMQP's prefetch count has two bytes."""


@dataclass(frozen=True)
class RabbitSettings:
    """The parsed options.

    Attributes:
        queues: The queues to read.
        prefetch: Messages that each queue delivers before they are acknowledged.
        connection: How pika connects; includes the password and is never shown.
    """

    queues: tuple[str, ...]
    prefetch: int
    connection: pika.ConnectionParameters = field(repr=False)

    @staticmethod
    def of(given: Mapping[str, str]) -> RabbitSettings:
        """The settings in the options of a reader; does not connect.

        Raises:
            AnalysisError: Naming an option that is missing, unknown or invalid.
        """
        options = Options(given)
        options.only(list(RABBITMQ_OPTIONS), NAME)
        queues = tuple(dict.fromkeys(name.strip() for name in (options.get("queues") or "").split(",") if name.strip()))
        if not queues:
            message = f'option: format("{NAME}") needs option("queues", "name, …").'
            raise AnalysisError(message)
        most = ReaderSettings.of(options).limits.messages
        if not len(queues) <= most <= _MOST_UNACKNOWLEDGED * len(queues):
            message = (
                f"option: maxUnacknowledged={most} is for {len(queues)} queues, of which each may deliver 1 to "
                f"{_MOST_UNACKNOWLEDGED} messages."
            )
            raise AnalysisError(message)
        return RabbitSettings(queues, most // len(queues), _connection(options))


def _connection(options: Options) -> pika.ConnectionParameters:
    host = options.get("host") or "localhost"
    tls = options.flag("tls")
    for name in ("caFile", "certFile", "keyFile"):
        if options.get(name) is not None and not tls:
            message = f'option: {name} is of TLS: set option("tls", True), or leave it out.'
            raise AnalysisError(message)
    return pika.ConnectionParameters(
        host=host,
        port=options.number("port", default=5671 if tls else 5672),
        virtual_host=options.get("virtualHost") or "/",
        credentials=pika.PlainCredentials(options.get("user") or "guest", options.get("password") or "guest"),
        ssl_options=pika.SSLOptions(_context(options), host) if tls else None,
        heartbeat=options.number("heartbeat", default=60),
        client_properties={"connection_name": "sparkjet"},
    )


def _context(options: Options) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("caFile"))
        certificate = options.get("certFile")
        if certificate is not None:
            context.load_cert_chain(certificate, options.get("keyFile"))
    except (OSError, ssl.SSLError) as error:
        message = f"option: caFile, certFile or keyFile cannot be used: {error}"
        raise AnalysisError(message) from error
    return context
