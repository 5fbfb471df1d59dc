"""Sinks: the destinations of results, and the protocol for adding others."""

from typing import TYPE_CHECKING, Any

from sparkjet.sinks.protocol import (
    Aborting,
    Creating,
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

if TYPE_CHECKING:
    from sparkjet.sinks.outbox_sink import OutboxSink
else:

    def __getattr__(name: str) -> Any:
        # On use: what asks a database or a topic whether it is complete has no PySpark, and imports a module from here.
        if name != "OutboxSink":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from sparkjet.sinks.outbox_sink import OutboxSink  # noqa: PLC0415 - see above

        return OutboxSink


__all__ = [
    "Aborting",
    "Creating",
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
