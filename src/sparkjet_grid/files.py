"""Files as entries of a grid: a byte is a row, so that the rows counted for an entry are the size of the file."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.errors import MissingEntriesError
from sparkjet_grid.messages import Held

_SCHEMA = pa.schema([pa.field("content", pa.uint8(), nullable=False)])
_PIECE = 4 << 20
"""Bytes in a batch."""


def write_files(client: GridClient, contents: Mapping[str, bytes], partition: int | None = None) -> list[Held]:
    """Write files, under unique full names, to all their replicas; returns them as they are held."""
    return client.put([client.entry(name, _SCHEMA, _pieces(content), partition) for name, content in contents.items()])


def read_files(client: GridClient, files: Sequence[Held]) -> dict[str, bytes]:
    """The contents of files by their full names."""
    try:
        return contents_of(client, files)
    except MissingEntriesError as error:
        raise FileNotFoundError(errno.ENOENT, str(error), files[0].name) from error


def contents_of(client: GridClient, files: Sequence[Held]) -> dict[str, bytes]:
    """Like :func:`read_files`, but raises the grid's own error."""
    found = {each.key.name: each.batches for each in client.get(files)}
    return {name: b"".join(map(_bytes_of, batches)) for name, batches in found.items()}


def _pieces(content: bytes) -> list[pa.RecordBatch]:
    buffer = pa.py_buffer(content)
    starts = range(0, len(content), _PIECE) or [0]
    pieces = (buffer.slice(start, min(_PIECE, len(content) - start)) for start in starts)
    arrays = (pa.Array.from_buffers(pa.uint8(), piece.size, [None, piece]) for piece in pieces)
    return [pa.record_batch([array], schema=_SCHEMA) for array in arrays]


def _bytes_of(batch: pa.RecordBatch) -> bytes:
    column = batch.column(0)
    data = column.buffers()[1]
    content: bytes = data.slice(column.offset, len(column)).to_pybytes() if data is not None else b""
    return content
