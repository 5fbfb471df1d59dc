"""Shared by the tests of differences: rows at seconds, and the rows that each batch of a query brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import Row

SCHEMA = "ts timestamp, k string, v int, p string"


def at(second: int, k: str = "a", v: int = 1, p: str = "0") -> dict[str, Any]:
    """A row at a time after 10 o'clock, of partition ``p``."""
    minute, second = divmod(second, 60)
    return {"ts": f"2026-03-01 10:{minute:02}:{second:02}", "k": k, "v": v, "p": p}


def in_batches(rows: Any, mode: str = "append") -> list[tuple[int, list[Row]]]:
    """Number, from 0, and rows of each batch that brings any."""
    found: list[tuple[int, list[Row]]] = []
    first = 1 if isinstance(rows, sj.Stream) else 0

    def collect(batch: Any, number: int) -> None:
        if batch.count():
            found.append((number - first, batch.collect()))

    writer = rows.writeStream.foreachBatch(collect).outputMode(mode)
    writer.trigger(availableNow=True).start().awaitTermination()
    return found
