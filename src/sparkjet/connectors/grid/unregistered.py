"""Unregistered readers: offsets of a journal by which a fork reads it, and holds nothing in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.sources.carrying import CarryingOffset

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record

UNREGISTERED = "/"
"""Stands for the reader in an offset: nobody can have this name, and nothing is kept for who has none."""
JOURNAL_OFFSET = "grid-journal"
"""The ``source`` of such an offset."""


def unregistered(record: Record) -> Record:
    r"""A record whose offsets of journals have no reader; whoever goes on from it reads what is still there.

    >>> _unregistered('v1\n{}\n{"source": "grid-journal", "offsets": {}, "watermarks": {}, "reader": "r"}\n4')
    'v1\n{}\n{"source": "grid-journal", "offsets": {}, "watermarks": {}, "reader": "/"}\n4'
    >>> _unregistered('v2\n{}\na:{"source": "grid-journal", "offsets": {}, "watermarks": {}, "reader": "r"}')
    'v2\n{}\na:{"source": "grid-journal", "offsets": {}, "watermarks": {}, "reader": "/"}'
    """
    if record.spark is None:
        return record
    files = {
        name: _unregistered(text) if name.startswith("offsets/") else text for name, text in record.spark.files.items()
    }
    return msgspec.structs.replace(record, spark=msgspec.structs.replace(record.spark, files=files))


def unregistered_count(record: Record) -> int:
    """The number of sources that are journals according to a record, and are read without a reader."""
    if record.spark is None:
        return 0
    lines = record.spark.files[f"offsets/{record.spark.batch}"].split("\n")
    return sum(offset is not None and offset["reader"] == UNREGISTERED for _, offset in map(_journal, lines))


def _unregistered(text: str) -> str:
    if JOURNAL_OFFSET not in text:
        return text
    version, metadata, *lines = text.split("\n")
    return "\n".join([version, metadata, *map(_without_reader, lines)])


def _without_reader(line: str) -> str:
    name, offset = _journal(line)
    return line if offset is None else name + json.dumps({**offset, "reader": UNREGISTERED})


def _journal(line: str) -> tuple[str, dict[str, Any] | None]:
    """A line of Spark's offset log: the name of the source, if it has one, and the offset if it is one of a journal."""
    name, brace, rest = line.partition("{")
    # What is in others is for their sources to read.
    decoded = json.loads(brace + rest) if f'"{JOURNAL_OFFSET}"' in line else None
    found = CarryingOffset.found_in(decoded)
    return name, decoded if found is not None and found.source == JOURNAL_OFFSET else None
