"""Rows as the tasks of the PostgreSQL sink get them."""

from __future__ import annotations

import pyarrow as pa


def batch(*rows: tuple[str | int, ...]) -> list[pa.RecordBatch]:
    """One batch, of texts and of numbers of four bytes."""
    columns = [
        pa.array(values, pa.string() if isinstance(values[0], str) else pa.int32())
        for values in zip(*rows, strict=True)
    ]
    return [pa.record_batch(columns, [str(number) for number in range(len(columns))])]
