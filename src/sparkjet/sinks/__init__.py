"""Destinations of results, and the protocol by which others can add theirs."""

from sparkjet.sinks.outbox import OutboxSink
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
