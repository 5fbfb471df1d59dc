"""Destinations of results, and the protocol by which others can add theirs."""

from sparkjet.sinks.outbox import OutboxSink
from sparkjet.sinks.protocol import Creating, Expiring, Guarantee, Handle, Keyed, Sink, TransactionId

__all__ = ["Creating", "Expiring", "Guarantee", "Handle", "Keyed", "OutboxSink", "Sink", "TransactionId"]
