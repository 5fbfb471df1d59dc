"""Rows for a join: the expressions that hand judged rows to one of its sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import TIME, CompiledColumns, Once, quoted, visible
from sparkjet.catalyst.join_conditions import place
from sparkjet.plan.dropped_rows import DROPPED
from sparkjet.plan.partial_rows import DROPPED_OF, HIGHEST, KIND, ProgressDetail, is_kept, labels, with_copies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.state import Side


class JoinRows:
    """The expressions of one side; each is built once, because Spark would compile another one anew.

    A row becomes ``(<side>_time, <side>0, <side>1, …, kind[, substream], highest)``.

    Args:
        side: ``"left"`` or ``"right"``.
        by_substream: Whether rows can be of different substreams.
    """

    def __init__(self, side: str, *, by_substream: bool) -> None:
        self.timed = True
        self.substreams: tuple[str, ...] = ()
        self._side = side
        self._once = Once()
        self._labels = ("kind", "substream") if by_substream else ("kind",)
        time = f"{side}_time"
        sums = F.count(F.lit(1)), F.min(time), F.max(time), F.count(F.lit(1)), F.max("highest")
        self.totals = CompiledColumns(self._labels), CompiledColumns(sums)
        """Of :meth:`of`: labels to group by; their rows, least and greatest time, events and highest time."""

    def of(self, judged: DataFrame, side: Side, detail: ProgressDetail) -> DataFrame:  # noqa: ARG002 - Intake's signature
        """The accepted rows, and the others with nothing but what they are counted by."""
        rows = with_copies(judged, self._once) if detail is ProgressDetail.EACH else judged
        return self._once("shaped", detail, build=lambda: self._shaped(judged, detail)).select(rows)

    def _shaped(self, judged: DataFrame, detail: ProgressDetail) -> CompiledColumns:
        kept = is_kept(detail)
        names = [name for name in visible(judged) if name != DROPPED]
        columns = [
            F.when(kept, F.col(quoted(name))).alias(place(self._side, number)) for number, name in enumerate(names)
        ]
        hidden = {KIND: "kind", DROPPED_OF: "substream", HIGHEST: "highest"}
        counted = dict(zip(hidden.values(), labels(detail), strict=True))
        return CompiledColumns(
            [
                F.when(kept, F.col(TIME)).alias(f"{self._side}_time"),
                *columns,
                *(counted[name].alias(name) for name in (*self._labels, "highest")),
            ]
        )
