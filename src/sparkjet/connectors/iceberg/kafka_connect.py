"""What Kafka Connect's sink says in the summaries of an Iceberg table's snapshots; without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COMMIT, _VALID_THROUGH = "kafka.connect.commit-id", "kafka.connect.valid-through-ts"
_OFFSETS = "kafka.connect.offsets."
"""How the entry begins whose name ends with the control topic and the group of a connector."""


def connector_of(summary: Mapping[str, str]) -> str | None:
    """The connector of Kafka Connect that has written a snapshot, by its group; None if none has.

    >>> connector_of({"kafka.connect.commit-id": "7", "kafka.connect.offsets.control.connect-orders": "{}"})
    'Kafka Connect control.connect-orders'
    """
    named = sorted(key.removeprefix(_OFFSETS) for key in summary if key.startswith(_OFFSETS))
    if named:
        return f"Kafka Connect {named[0]}"
    return "Kafka Connect" if _COMMIT in summary or _VALID_THROUGH in summary else None


def valid_through(summary: Mapping[str, str]) -> datetime | None:
    """Up to when a connector has written all records, by their timestamps; None if its tasks have not told one time."""
    text = summary.get(_VALID_THROUGH)
    if text is None:
        return None
    if text.isdecimal():
        return EPOCH + timedelta(milliseconds=int(text))
    # Python 3.10 knows no Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
