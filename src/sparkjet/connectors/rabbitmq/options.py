"""Options of ``format("rabbitmq")`` and ``format("sparkjet-rabbitmq")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.options import BROKER_OPTIONS, Option, flag, number, text
from sparkjet.sources.acknowledging.reader_options import QUEUES, READER_OPTIONS
from sparkjet.sources.alignment import MAX_DRIFT

SOURCE_NAME = "sparkjet-rabbitmq"
"""The name of the source."""
HOST = text("host", "Host name of the broker.", "localhost")
PORT = number("port", "Port of the broker; 5672 by default, 5671 with tls.")
VIRTUAL_HOST = text("virtualHost", "Virtual host.", "/")
USER = text("user", "User name.", "guest")
_CONNECTION: Sequence[Option[Any]] = (HOST, PORT, VIRTUAL_HOST, USER, *BROKER_OPTIONS)

EXCHANGE = text(
    "exchange",
    "Exchange to publish to; the default exchange, where keys are queues, by default. Overrides a column exchange.",
)
ROUTING_KEY = text("routingKey", "Routing key of every message; overrides a column routing_key.")
CONFIRM_TIMEOUT = number("confirmTimeoutMs", "How long the broker may take to confirm a message.", 60_000)
SINK_OPTIONS: Sequence[Option[Any]] = (EXCHANGE, ROUTING_KEY, CONFIRM_TIMEOUT, *_CONNECTION)

INCLUDE_HEADERS = flag("includeHeaders", "Whether to add columns headers, type, reply_to and redelivered.")
SOURCE_OPTIONS: Sequence[Option[Any]] = (QUEUES, INCLUDE_HEADERS, *_CONNECTION, *READER_OPTIONS, MAX_DRIFT)
