"""Raw rows: the expressions that pass judged rows to a stage as they are, under their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT, SUBSTREAM, TIME, CompiledColumns, Once, quoted, visible
from sparkjet.plan.dropped_rows import DROPPED, RowKind
from sparkjet.plan.partial_rows import (
    DROPPED_OF,
    HIGHEST,
    KIND,
    ProgressDetail,
    is_kept,
    labels,
    nulled,
    with_copies,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from sparkjet.state import Side

ROW = "row"
"""The row itself: a struct of the user's visible columns."""
ROW_TIME = "time"
"""Its event time in microseconds; null if the stream has no watermark."""


class RawRows:
    """The expressions of one feed; each is built once, because Spark would compile it again otherwise.

    A row becomes ``(keys…, time, row, kind[, substream], highest)``.

    Args:
        keys: The columns to partition by, by their names inside the engine.
        by_substream: Whether rows can be of different substreams.
        timed: Whether rows without an event time are dropped; otherwise no row is.
    """

    def __init__(self, keys: Mapping[str, Column], *, by_substream: bool, timed: bool = True) -> None:
        self.timed = timed
        self.substreams: tuple[str, ...] = ()
        self._keys = dict(keys)
        self._once = Once()
        self._labels = ("kind", "substream") if by_substream else ("kind",)
        times = F.min(ROW_TIME), F.max(ROW_TIME)
        sums = F.count(F.lit(1)), *times, F.count(F.lit(1)), F.max("highest")
        self.totals = CompiledColumns(self._labels), CompiledColumns(sums)
        """Totals of :meth:`of`: labels to group by; their rows, least and greatest time, events and highest time."""

    def of(self, judged: DataFrame, side: Side, detail: ProgressDetail) -> DataFrame:  # noqa: ARG002 - Intake's signature
        """The accepted rows, and the others with only the columns by which they are counted."""
        rows = with_copies(judged, self._once) if detail is ProgressDetail.EACH else judged
        kept = self._once("nulled", detail, build=lambda: self._nulled(judged, detail))
        return self._once("shaped", build=lambda: self._shaped(judged)).select(kept.select(rows))

    def _nulled(self, judged: DataFrame, detail: ProgressDetail) -> CompiledColumns:
        names = [name for name in judged.columns if name not in {DROPPED, KEPT, SUBSTREAM}]
        return CompiledColumns([*nulled(names, is_kept(detail)), *labels(detail)])

    def _shaped(self, judged: DataFrame) -> CompiledColumns:
        accepted = F.col(KIND) == RowKind.ACCEPTED.value
        # Keys are computed from the nulled columns, and nulled again, as a key may turn a null into something else.
        keys = [F.when(accepted, key).alias(name) for name, key in self._keys.items()]
        columns = [quoted(name) for name in visible(judged) if name != DROPPED]
        row = F.when(accepted, F.struct(*columns)).alias(ROW)
        hidden = {"kind": KIND, "substream": DROPPED_OF}
        counted = [F.col(hidden[name]).alias(name) for name in self._labels]
        return CompiledColumns([*keys, F.col(TIME).alias(ROW_TIME), row, *counted, F.col(HIGHEST).alias("highest")])
