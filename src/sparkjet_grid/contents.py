"""The content of an entry: record batches of one schema, with their size in memory and a digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types
from xxhash import xxh3_64

from sparkjet_grid.errors import MalformedError

OVERHEAD = 1024
"""Bytes counted for each batch besides its data, so that empty batches are not free."""
_ALGORITHM = "xxh3-64"
"""The prefix of digests, so that those of different algorithms are never equal."""
_NESTED = types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map, types.is_struct
_REFUSED = types.is_dictionary, types.is_union, types.is_run_end_encoded
_PLAIN = (
    types.is_null,
    types.is_boolean,
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_temporal,
    types.is_binary,
    types.is_large_binary,
    types.is_string,
    types.is_large_string,
    types.is_fixed_size_binary,
)


@dataclass(frozen=True)
class Content:
    """The content of an entry as a member holds it.

    Attributes:
        schema: The schema of its batches.
        batches: At least one, which may be empty.
        rows: Their number of rows.
        size: Bytes of memory that they take.
        digest: Of the batches, as computed by the primary.
    """

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    rows: int
    size: int
    digest: str

    @classmethod
    def of(
        cls, schema: pa.Schema, batches: Sequence[pa.RecordBatch], digest: str | None = None, size: int | None = None
    ) -> Content:
        """The content made of some batches; digest and size are computed unless they are given."""
        rows = sum(batch.num_rows for batch in batches)
        size = sum(map(size_of, batches)) if size is None else size
        return cls(schema, tuple(batches), rows, size, digest_of(batches) if digest is None else digest)


class Digest:
    """A digest of batches, against accidental changes; batches that have gone through Arrow's IPC have the same one.

    Each batch is added as it arrives: with its bytes still in the processor's cache it takes half the time.
    """

    def __init__(self) -> None:
        self._state = xxh3_64()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next batch."""
        lengths = [batch.num_rows]
        for column in batch.columns:
            for buffer in column.buffers():
                lengths.append(-1 if buffer is None else buffer.size)
                if buffer is not None:
                    self._state.update(buffer)
        # Rows may have no bytes at all, such as those of type null.
        self._state.update(repr(lengths).encode())

    def __str__(self) -> str:
        return f"{_ALGORITHM}:{self._state.hexdigest()}"


def digest_of(batches: Iterable[pa.RecordBatch]) -> str:
    """The digest of some batches."""
    digest = Digest()
    for batch in batches:
        digest.add(batch)
    return str(digest)


def size_of(batch: pa.RecordBatch) -> int:
    """Bytes that a batch keeps in memory, including parts of its message that no column refers to."""
    held: dict[int, int] = {}
    start = end = 0
    for column in batch.columns:
        for buffer in column.buffers():
            # Most are in the same message as the first one; checking that is cheaper than following parents.
            if buffer is not None and not start <= buffer.address < end:
                # A message may be larger than its buffers, and stays in memory as a whole while one of them is in use.
                while (parent := buffer.parent) is not None:
                    buffer = parent  # noqa: PLW2901 - walks up
                start, end = buffer.address, buffer.address + buffer.size
                held[start] = max(buffer.size, held.get(start, 0))
    return sum(held.values()) + OVERHEAD


def check_schema(schema: pa.Schema) -> None:
    """Refuse types whose arrays a member cannot forward without trusting every number in them."""
    for field in schema:
        if not _is_held(field.type):
            message = f"column {field.name[:100]!r} has the type {str(field.type)[:100]}, which a grid does not hold."
            raise MalformedError(message)


def check_batch(batch: pa.RecordBatch) -> None:
    """Refuse a batch whose lengths or offsets point outside its buffers: forwarding it would read whatever is there."""
    try:
        batch.validate()
    except pa.ArrowInvalid as error:
        raise MalformedError(f"a record batch is not valid: {str(error).partition('Detail')[0][:200]}") from error


def _is_held(kind: pa.DataType) -> bool:
    if any(is_one(kind) for is_one in _NESTED):
        return all(_is_held(kind.field(position).type) for position in range(kind.num_fields))
    return any(is_one(kind) for is_one in _PLAIN) and not any(is_one(kind) for is_one in _REFUSED)
