"""Sinks: the destinations of results, and the protocol for adding others."""

from sparkjet.sinks.outbox_sink import OutboxSink
from sparkjet.sinks.protocol import (
    Aborting,
    Creating,
    Dated,
    Expiring,
    Guarantee,
    Handle,
    Keyed,
    Later,
    Sink,
    TransactionId,
    Trying,
    Unknown,
)

__all__ = [
    "Aborting",
    "Creating",
    "Dated",
    "Expiring",
    "Guarantee",
    "Handle",
    "Keyed",
    "Later",
    "OutboxSink",
    "Sink",
    "TransactionId",
    "Trying",
    "Unknown",
]
