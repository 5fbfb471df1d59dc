"""Options of ``format("artemis")`` and ``format("sparkjet-artemis")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.options import BROKER_OPTIONS, Option, names, number, size, text
from sparkjet.sources.acknowledging.reader_options import QUEUES, READER_OPTIONS

SOURCE_NAME = "sparkjet-artemis"
"""The name of the source."""
HOST = text("host", "Host name of the broker.", "localhost")
PORT = number("port", "Port of an acceptor that takes STOMP.", 61_616)
USER = text("user", "User name.", "")
_CONNECTION: Sequence[Option[Any]] = (HOST, PORT, USER, *BROKER_OPTIONS)

QUEUE = text("queue", "Queue to send to: one consumer gets each message.")
TOPIC = text("topic", "Topic to send to instead: all subscribers get each message.")
MOST_MESSAGES = number(
    "maxMessagesPerTransaction", "Messages that become visible together; the broker holds them in memory.", 10_000
)
SINK_OPTIONS: Sequence[Option[Any]] = (QUEUE, TOPIC, *_CONNECTION, MOST_MESSAGES)

_QUEUES = names(QUEUES.name, "Queues, or address::queue; each is a substream.")
ID_PROPERTY = text(
    "idProperty", "Property in which producers identify a message, unlike any other; the broker's number by default."
)
WINDOW_SIZE = size(
    "consumerWindowSize", "Bytes that the broker delivers of a queue before they are acknowledged.", "16m"
)
SOURCE_OPTIONS: Sequence[Option[Any]] = (_QUEUES, *_CONNECTION, ID_PROPERTY, WINDOW_SIZE, *READER_OPTIONS)
