"""Sinks: the destinations of results, and the protocol for adding others."""

from sparkjet.sinks.outbox_sink import OutboxSink
from sparkjet.sinks.protocol import (
    Aborting,
    Creating,
    Expiring,
    Guarantee,
    Handle,
    Keyed,
    Remembering,
    Sink,
    TransactionId,
)

__all__ = [
    "Aborting",
    "Creating",
    "Expiring",
    "Guarantee",
    "Handle",
    "Keyed",
    "OutboxSink",
    "Remembering",
    "Sink",
    "TransactionId",
]
