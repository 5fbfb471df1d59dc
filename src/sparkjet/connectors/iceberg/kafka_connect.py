"""The summaries that Kafka Connect's sink writes into an Iceberg table's snapshots; without PySpark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COMMIT, _VALID_THROUGH = "kafka.connect.commit-id", "kafka.connect.valid-through-ts"
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc)
_NUMBER, _YEAR = re.compile(r"-?[0-9]+"), re.compile(r"[+-]?[0-9]{4,}(?=-)")
_NANOS = re.compile(r"(\.[0-9]{6})[0-9]+")
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
    """Up to when a connector has written all records, by their timestamps; None if its tasks have not told one time.

    Timestamps of records may be anything, such as seconds taken for milliseconds: a year that Python's calendar does
    not have is its last one, or its first.

    >>> valid_through({"kafka.connect.valid-through-ts": "2026-01-05T10:00:00.123456789Z"})
    datetime.datetime(2026, 1, 5, 10, 0, 0, 123456, tzinfo=datetime.timezone.utc)
    >>> valid_through({"kafka.connect.valid-through-ts": "+56000-02-29T10:00Z"}).year
    9999
    >>> valid_through({"kafka.connect.valid-through-ts": "soon"}) is None
    True
    """
    text = summary.get(_VALID_THROUGH, "")
    if _NUMBER.fullmatch(text):
        millis = [(end - EPOCH) // timedelta(milliseconds=1) for end in (_FIRST, _LAST)]
        return EPOCH + timedelta(milliseconds=min(max(int(text), millis[0]), millis[1]))
    year = _YEAR.match(text)
    if year is None:
        return None
    if not _FIRST.year <= int(year[0]) <= _LAST.year:
        return _LAST if int(year[0]) > 0 else _FIRST
    try:
        # Python 3.10 knows no Z, and no version of it knows nanoseconds.
        found = datetime.fromisoformat(_NANOS.sub(r"\1", text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return None if found.tzinfo is None else found
