"""The spool: the rows of received messages on the driver's disk, until the epoch that holds them is decided."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

CHUNK = 1 << 26
"""Approximate number of bytes of values in a file: Arrow's columns end at 2 GB."""
_SHOWN = 60


class UnrepresentableError(Exception):
    """A value that its column cannot hold.

    Attributes:
        row: The number of its row among those to be stored.
    """

    def __init__(self, row: int, column: str, value: Any, reason: object) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        super().__init__(f"column {column} cannot hold {shown} ({reason})")
        self.row = row


@dataclass(frozen=True)
class _Chunk:
    path: Path
    start: int
    end: int
    size: int


class Spool:
    """Rows by position, in files that are read again whenever Spark plans or retries a batch.

    Within a run a range must have the same rows every time, and a broker delivers a message to a consumer only once.
    The files need not outlive the run: unacknowledged messages come again. One process writes and reads; not
    thread-safe.

    Args:
        directory: An empty directory for this spool alone, which is removed with it.
        schema: The columns of a row.
    """

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory, self._schema = directory, schema
        self._sized = [number for number, field in enumerate(schema) if _has_size(field.type)]
        self._chunks: deque[_Chunk] = deque()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(chunk.size for chunk in self._chunks)

    def append(self, position: int, rows: Sequence[Sequence[Any]]) -> None:
        """Append rows.

        Args:
            position: Position of the first row, beyond all earlier ones.
            rows: Their values.

        Raises:
            UnrepresentableError: A row cannot be stored, so none is.
            OSError: The disk is full; none of these rows is stored.
        """
        chunks: list[_Chunk] = []
        try:
            for part in self._parts(rows):
                # Its name first: a half-written file would fill the disk further.
                path = self._directory / f"{position:020d}.arrow"
                chunks.append(_Chunk(path, position, position + len(part), 0))
                self._write(path, self._batch(part, rows))
                chunks[-1] = _Chunk(path, position, position + len(part), path.stat().st_size)
                position += len(part)
        except BaseException:
            for chunk in chunks:
                chunk.path.unlink(missing_ok=True)
            raise
        self._chunks += chunks

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of a range of positions, in order, without removed ones."""
        for chunk in self._chunks:
            first, last = max(start, chunk.start), min(end, chunk.end)
            if first < last:
                with pa.memory_map(str(chunk.path)) as file:
                    yield pa.ipc.open_file(file).get_batch(0).slice(first - chunk.start, last - first)

    def remove(self, end: int) -> None:
        """Remove the files that have only rows before a position; a second call does nothing."""
        while self._chunks and self._chunks[0].end <= end:
            self._chunks[0].path.unlink()
            # After the file: a failure leaves an entry that can be removed again.
            self._chunks.popleft()

    def close(self) -> None:
        """Remove everything; a second call does nothing."""
        self._chunks.clear()
        if self._directory.is_dir():
            shutil.rmtree(self._directory)

    def _parts(self, rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
        start = size = 0
        if sum(_length(map(itemgetter(number), rows)) for number in self._sized) > CHUNK:
            for number, row in enumerate(rows):
                length = _length(row[each] for each in self._sized)
                if size + length > CHUNK and number > start:
                    yield rows[start:number]
                    start, size = number, 0
                size += length
        yield rows[start:]

    def _batch(self, part: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        columns = zip(zip(*part, strict=True), self._schema, strict=True)
        try:
            return pa.record_batch([_array(values, field) for values, field in columns], schema=self._schema)
        except _REFUSALS:
            for number, row in enumerate(rows):
                for value, field in zip(row, self._schema, strict=True):
                    try:
                        _array([value], field)
                    except _REFUSALS as error:
                        raise UnrepresentableError(number, field.name, value, error) from error
            raise

    def _write(self, path: Path, batch: pa.RecordBatch) -> None:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            writer.write_batch(batch)


_REFUSALS = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
"""Errors that Arrow raises for a value; not all of them are its own."""


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    array = pa.array(values, field.type)
    if isinstance(array, pa.ChunkedArray):
        raise ValueError("it is larger than 2 GB")  # noqa: TRY004 - of a value, not of its type
    return array


def _length(values: Iterable[Any]) -> int:
    try:
        return sum(map(len, filter(None, values)))
    except TypeError:
        # Arrow says more of a value that is not a string.
        return 0


def _has_size(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_string(type_))
