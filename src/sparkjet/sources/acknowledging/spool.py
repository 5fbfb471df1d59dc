"""The spool: the rows of received messages on the driver's disk, until the epoch that holds them is decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

POSITION = "_position"
"""Column of a stored row's position."""


@dataclass(frozen=True)
class _Chunk:
    path: Path
    end: int
    size: int


class Spool:
    """Rows by their position, in files that are read again as often as Spark plans or retries a batch.

    Within a run a range must have the same rows every time, and a broker delivers a message to a consumer only once.
    The files need not outlive the run: what was not acknowledged comes again. One process writes and reads; it is not
    safe for several threads.

    Args:
        directory: An empty directory for this spool alone, which goes with it.
        schema: The columns of a row.
    """

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory = directory
        self._schema = schema.append(pa.field(POSITION, pa.int64()))
        self._chunks: deque[_Chunk] = deque()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(chunk.size for chunk in self._chunks)

    def append(self, positions: Sequence[int], columns: Sequence[Sequence[Any]]) -> None:
        """Store rows behind all others.

        Args:
            positions: Their positions, ascending and beyond those before; a dropped message has one and no row.
            columns: Their values, column by column.

        Raises:
            OSError: The disk is full; nothing is stored of these rows.
        """
        arrays = [pa.array(values, field.type) for values, field in zip((*columns, positions), self._schema)]  # noqa: B905
        path = self._directory / f"{positions[0]:020d}.arrow"
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
                writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        except OSError:
            # A half-written file would fill the disk further.
            path.unlink(missing_ok=True)
            raise
        self._chunks.append(_Chunk(path, positions[-1] + 1, path.stat().st_size))

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows of a range of positions, in order; a row that was removed is not among them."""
        for chunk in self._chunks:
            if chunk.end <= start:
                continue
            with pa.memory_map(str(chunk.path)) as file:
                rows = pa.ipc.open_file(file).get_batch(0)
                positions = rows.column(POSITION).to_numpy()
                first, last = positions.searchsorted([start, end])
                if first == last:
                    return
                yield rows.slice(first, last - first).drop_columns([POSITION])

    def remove(self, end: int) -> None:
        """Remove the files that have only rows before a position; a second call does nothing."""
        while self._chunks and self._chunks[0].end <= end:
            self._chunks[0].path.unlink()
            # After the file: a failure leaves an entry that can be removed again.
            self._chunks.popleft()

    def close(self) -> None:
        """Remove everything; a second call does nothing."""
        for chunk in self._chunks:
            chunk.path.unlink(missing_ok=True)
        self._chunks.clear()
        if self._directory.is_dir():
            self._directory.rmdir()
