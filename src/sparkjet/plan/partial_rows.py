"""Partial rows: the expressions that turn judged rows into one row for each key and frame."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT, SUBSTREAM, TIME, CompiledColumns, Once, quoted
from sparkjet.plan.dropped_rows import DROPPED, RowKind
from sparkjet.plan.inputs import MOST_FIXED
from sparkjet.time import MIN
from sparkjet.windows import Accumulators

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame

    from sparkjet.windows import WindowOperator

KIND = "_sparkjet_kind"
"""The :class:`RowKind` of a row.

It is never null: Spark would replace its fast hash table with a slower one. Nor is it text: partial aggregation would
take a quarter longer.
"""
DROPPED_OF = "_sparkjet_dropped_of"
"""The substream of a row that is not accepted, empty otherwise; only if there are several substreams."""
FRAME = "_sparkjet_frame"
HIGHEST = "_sparkjet_highest"
_HIGHEST = ("highest", *(f"highest{number}" for number in range(MOST_FIXED)))
"""Highest event times of partial rows: one for their own substream, or one for each."""
COPY = "_sparkjet_copy"
"""Whether a row exists only for the progress of its substream."""


class ProgressDetail(Enum):
    """The facts about event time that partial aggregation finds out, in addition to the partial rows.

    EACH costs a second row for each row of the batch, whatever the number of substreams: with the substream in the
    group key, there would be a partial row per key, frame and substream. One maximum per substream costs a comparison
    per row and substream; this is done if there are few of them, all known before the first row.
    """

    NOTHING = "nothing"
    ALL = "all"
    """The highest time of all rows, which belong to one substream."""
    EACH = "each"
    """The highest time of each substream."""


class PartialRows:
    """The expressions of one aggregation; each is built once, because Spark would compile it again otherwise.

    Args:
        keys: The columns to group by, by their names inside the engine.
        accumulators: The fields of the partial rows.
        by_substream: Whether rows can be of different substreams.
        substreams: All possible substreams, if they are few; otherwise empty.
        timed: Whether rows without an event time are dropped; otherwise aggregates treat them as older than all others.
    """

    def __init__(
        self,
        keys: Mapping[str, Column],
        accumulators: Accumulators,
        *,
        by_substream: bool,
        substreams: tuple[str, ...] = (),
        timed: bool = True,
    ) -> None:
        self.timed = timed
        self.substreams = substreams
        self._keys = dict(keys)
        self._accumulators = accumulators
        self._once = Once()
        # The columns that distinguish partial rows from the others, and the others from each other.
        self._labels = ("kind", "substream") if by_substream else ("kind",)
        frames = F.min("frame"), F.max("frame")
        self._highest = _HIGHEST[1 : len(substreams) + 1] or _HIGHEST[:1]
        sums = F.count(F.lit(1)), *frames, F.sum("row_count"), *map(F.max, self._highest)
        self.totals = CompiledColumns(self._labels), CompiledColumns(sums)
        """Totals of :meth:`of`: labels to group by; their rows, lowest and highest frame, events and highest times."""

    def of(self, judged: DataFrame, operator: WindowOperator, detail: ProgressDetail) -> DataFrame:
        """Partial rows of the accepted rows, and one row per kind and substream of the others.

        One pass does both: the key, the frame and the columns of a row that is not accepted are set to null, so that it
        is counted without being aggregated (a late row must not overflow a sum that it is not part of).
        """
        if self.substreams:
            # Found in parallel, without a copy of each row.
            detail = ProgressDetail.ALL
        rows = with_copies(judged, self._once) if detail is ProgressDetail.EACH else judged
        kept = self._once("nulled", detail, build=lambda: self._nulled(judged.columns, operator, detail))
        groups = self._once("groups", build=self._groups)
        sums = self._once("sums", build=lambda: self._sums(operator))
        return sums.agg(kept.select(rows), groups)

    def _nulled(self, columns: list[str], operator: WindowOperator, detail: ProgressDetail) -> CompiledColumns:
        kept = is_kept(detail)
        visible = [name for name in columns if name not in {DROPPED, KEPT, SUBSTREAM, TIME}]
        # Never null in an accepted row: by it, ordered aggregates recognize accepted rows.
        known = F.col(TIME) if self.timed else F.coalesce(F.col(TIME), F.lit(MIN))
        time = F.when(kept, known).alias(TIME)
        frame = F.when(kept, operator.frame_of(F.col(TIME))).alias(FRAME)
        of = [F.col(SUBSTREAM)] if self.substreams else []
        return CompiledColumns([*nulled(visible, kept), time, frame, *labels(detail), *of])

    def _groups(self) -> CompiledColumns:
        # Keys are computed from the nulled columns, and nulled again, as a key may turn a null into something else.
        keys = [F.when(F.col(FRAME).isNotNull(), key).alias(name) for name, key in self._keys.items()]
        hidden = {"frame": FRAME, "kind": KIND, "substream": DROPPED_OF}
        return CompiledColumns([*keys, *(F.col(hidden[name]).alias(name) for name in ("frame", *self._labels))])

    def _sums(self, operator: WindowOperator) -> CompiledColumns:
        bounds = [column.alias(name) for name, column in operator.bounds(F.col(TIME)).items()]
        aggregations = Accumulators.aggregations(self._accumulators.results)
        times = [F.when(F.col(SUBSTREAM) == name, F.col(HIGHEST)) for name in self.substreams] or [F.col(HIGHEST)]
        highest = [F.max(time).alias(name) for time, name in zip(times, self._highest, strict=True)]
        return CompiledColumns([*highest, *bounds, *aggregations])


def accepted(table: DataFrame) -> DataFrame:
    """The partial rows among the rows from :meth:`PartialRows.of`."""
    return table.where(f"kind = {RowKind.ACCEPTED.value}").drop("kind", "substream", *_HIGHEST)


def with_copies(judged: DataFrame, once: Once) -> DataFrame:
    """Each row and a copy that exists only for the progress of its substream; only the copy of a row not kept."""
    copies = once("copies", build=lambda: F.explode(F.array(F.lit(False), F.lit(True))))
    return judged.withColumn(COPY, copies).where(F.col(COPY) | F.col(KEPT))


def is_kept(detail: ProgressDetail) -> Column:
    """Whether a row is accepted."""
    return F.col(KEPT) & F.col(DROPPED).isNull() & ~_is_copy(detail)


def nulled(names: Iterable[str], kept: Column) -> list[Column]:
    """Columns that are null unless the row is accepted, so that nothing is computed from other rows."""
    return [F.when(kept, F.col(quoted(name))).alias(name) for name in names]


def labels(detail: ProgressDetail) -> list[Column]:
    """The fate of a row, the substream for which it is counted if it is not accepted, and its event time."""
    kept = is_kept(detail)
    # Spark must know it as never null, too: see KIND.
    dropped = F.coalesce(F.col(DROPPED), F.lit(RowKind.NULL_TIMESTAMP.value))
    kind = F.when(kept, RowKind.ACCEPTED.value).when(_is_copy(detail), RowKind.PROGRESS_ONLY.value).otherwise(dropped)
    substream = F.when(kept, "").otherwise(F.col(SUBSTREAM))
    return [kind.alias(KIND), substream.alias(DROPPED_OF), F.col(TIME).alias(HIGHEST)]


def _is_copy(detail: ProgressDetail) -> Column:
    return F.col(COPY) if detail is ProgressDetail.EACH else ~F.col(KEPT)
