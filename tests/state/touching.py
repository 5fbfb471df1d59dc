"""The rows of a keyed store that an epoch touches, and the rows made of them, before these are persisted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from sparkjet.state import KeyedStore, Segment
    from sparkjet.state.keyed_rows import Touched


def touched_by(
    arrived: DataFrame, store: KeyedStore, watermark: int | None = None, due: tuple[int, int] = (MIN, MAX)
) -> Touched:
    """The entries that rows touch, of those due between two times; with a watermark also of those due before it."""
    before = MIN if watermark is None else watermark
    frames = {
        "arrived": [arrived],
        "due": _partials([each for each in store.segments if each.statistics.low < before]),
        "stored": _partials(store._read(due)),
    }
    given = {name: reduce(DataFrame.union, rows) for name, rows in frames.items() if rows}
    return store._rows.touched(given, watermark or 0, 2, store.closed, whole=False, single=False)


def made_of(
    arrived: Segment,
    store: KeyedStore,
    build: Callable[[Touched], DataFrame],
    watermark: int | None = None,
    due: tuple[int, int] = (MIN, MAX),
) -> DataFrame:
    """The result of ``build`` for rows and the entries that they touch, as by :func:`touched_by`."""
    return build(touched_by(arrived.partials, store, watermark, due))


def _partials(segments: Sequence[Segment]) -> list[DataFrame]:
    return [each.partials for each in segments]
