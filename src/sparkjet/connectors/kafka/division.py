"""How the rows of an epoch are divided into parts, each of which is published separately."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyarrow import parquet

from sparkjet.errors import SinkError

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle
    from sparkjet.storage.directory import Directory

_FEW_BYTES = 64 << 20
"""The maximum uncompressed size, in bytes, of the rows of an epoch that is published as one part."""


def parts_of(entry: Directory, handle: Handle, most: int, few: int) -> list[list[Any]]:
    """The files of each part, by their positions in the manifest, with the number of rows.

    A small epoch is one part, which the driver publishes itself: a job whose tasks each start a producer would take
    longer than publishing the rows. An epoch without rows has no parts.

    The division is fixed in the handle, whatever a later start is set to: a part is the same no matter who publishes
    it.
    """
    counts, size = [], 0
    for name, _, _ in handle["files"]:
        with entry.open(name) as content, parquet.ParquetFile(content) as file:
            found = file.metadata
            counts.append(found.num_rows)
            size += sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))
    if sum(counts) != handle["rows"]:
        message = f"The outbox has {sum(counts)} rows of {handle['rows']} that were written; the epoch is not decided."
        raise SinkError(message)
    filled = [number for number, count in enumerate(counts) if count]
    most = 1 if handle["rows"] <= few and size <= _FEW_BYTES else most
    shared = [filled[number::most] for number in range(min(most, len(filled)))]
    return [[files, sum(counts[each] for each in files)] for files in shared]


def names_of(handle: Handle, number: int) -> list[str]:
    """The names of a part's files."""
    return [handle["files"][each][0] for each in handle["parts"][number][0]]
