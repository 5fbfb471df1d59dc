"""Segments on their way through a snapshot: written as a store would, and read by the operator that continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.state import Segment
from sparkjet.state.segments import to_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_back(
    session: SparkSession, segments: Sequence[Segment], partitioned: Callable[[DataFrame], DataFrame], home: Path
) -> list[Segment]:
    """The segments as they are restored; ``home`` must be new."""
    found = []
    for number, segment in enumerate(segments):
        path = str(home / f"{number}")
        to_store(segment.partials).write.parquet(path)
        # Partitioned again: the files say nothing of it.
        rows = partitioned(session.read.parquet(path))
        assert rows.count() == segment.statistics.rows
        found.append(Segment(rows, segment.statistics))
    return found
