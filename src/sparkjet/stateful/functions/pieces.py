"""Pieces: the record batches of a partition, cut between groups of rows with the same key.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

POSITION = "position"
"""Number of a row in its group, from 1."""


@dataclass(frozen=True)
class Piece:
    """Rows of whole groups, except that a long last group may continue in the next piece.

    Attributes:
        rows: The rows, group by group.
        starts: Where groups start, 0 first.
        continues: Whether the first group continues the last one of the piece before.
    """

    rows: pa.RecordBatch
    starts: Sequence[int]
    continues: bool


def pieces(batches: Iterable[pa.RecordBatch], longest: int) -> Iterator[Piece]:
    """Cut record batches into pieces.

    The last group of a batch waits for the next batch, so that a group shorter than ``longest`` is never in two pieces:
    users' functions get the rows of a typical key at once.
    """
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if waiting is None else _joined(waiting, batch)
        if not rows.num_rows:
            continue
        firsts = np.flatnonzero(rows.column(POSITION).to_numpy() == 1).tolist()
        continues = not firsts or firsts[0] > 0
        starts = [0, *firsts] if continues else firsts
        cut = rows.num_rows if rows.num_rows - starts[-1] >= longest else starts[-1]
        waiting = rows.slice(cut) if cut < rows.num_rows else None
        if cut:
            yield Piece(rows.slice(0, cut), [each for each in starts if each < cut], continues)
    if waiting is not None:
        yield Piece(waiting, [0], waiting.column(POSITION)[0].as_py() > 1)


def _joined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    joined: pa.RecordBatch = pa.Table.from_batches([one, other]).combine_chunks().to_batches()[0]
    return joined
