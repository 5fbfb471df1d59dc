"""Aggregations: one level of windows each, as expressions from rows to partial rows and from windows to results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, ONLY_SUBSTREAM, SUBSTREAM, TIME, CompiledColumns, Once, quoted
from sparkjet.errors import AnalysisError
from sparkjet.plan.inputs import several_substreams
from sparkjet.windows import Accumulators, SessionWindow, SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.aggregates.operation import AggregateOperation
    from sparkjet.plan.inputs import Input
    from sparkjet.plan.transformations import Transformations
    from sparkjet.windows import Window, WindowOperator

DROPPED = "_sparkjet_dropped"
"""Why a row is not accepted, null for those that are."""
VERDICT = "_sparkjet_verdict"
"""A :class:`RowKind`. Never null: Spark would leave its fast hash table for a slower one. No text: partial aggregation
would take a quarter longer."""
DROPPED_OF = "_sparkjet_dropped_of"
"""Of rows with another verdict than ACCEPTED the substream, else empty; only where there are several substreams."""
FRAME = "_sparkjet_frame"
HIGHEST = "_sparkjet_highest"
COPY = "_sparkjet_copy"
"""Whether a row is only there to tell how far its substream has come."""
LATE = "late"
NULL_TIMESTAMP = "null_timestamp"
LATE_COLUMNS = ("_substream", "_watermark", "_reason")
"""What is added to the rows that are dropped."""
_NO_KEY = "key0"
_SESSION_GRAIN = 100


class RowKind(IntEnum):
    """What becomes of a row in partial aggregation."""

    ACCEPTED = 0
    PROGRESS_ONLY = 1
    """It only tells how far its substream has come."""
    LATE = 2
    NULL_TIMESTAMP = 3


class ProgressDetail(Enum):
    """What partial aggregation tells of event time, beside the partial rows.

    EACH costs a second row for each row of the batch, whatever the number of substreams: one maximum for each of
    them would cost a comparison per row and substream, and the substream in the group key a partial row per key,
    frame and substream.
    """

    NOTHING = "nothing"
    ALL = "all"
    """The highest time of all rows, which are of one substream."""
    EACH = "each"
    """The highest time of each substream."""


@dataclass(frozen=True)
class Key:
    """A grouping column: its name in the result, how it is computed, its type."""

    name: str
    column: Column
    type: DataType


@dataclass(frozen=True, eq=False)
class WindowedAggregation:
    """One ``groupBy(window, keys).agg(…)``; pure description, the state lives in the operator it makes.

    Inside the engine keys are named ``key0…`` and results ``result0…``, so that no name a user chose can collide.

    Attributes:
        transformations: From the rows that come in (an input's, or the results of ``parent``) to those that
            are aggregated.
        inputs: The inputs at the root.
        parent: The aggregation whose results are aggregated here, None at the root.
    """

    transformations: Transformations
    inputs: tuple[Input, ...]
    parent: WindowedAggregation | None
    window: Window | SessionWindow
    keys: tuple[Key, ...]
    order: tuple[str, ...]
    computes: tuple[str, ...]
    results: tuple[tuple[str, AggregateOperation], ...]

    @property
    def lineage(self) -> Iterator[WindowedAggregation]:
        """The aggregations from the root down to this one."""
        if self.parent is not None:
            yield from self.parent.lineage
        yield self

    @property
    def lag(self) -> int:
        """How far this aggregation's watermark is behind the query's.

        The time of a result is its end minus one. A session closes strictly after its end, so one that ends at the
        watermark is still to come, and would be late for a watermark that is not one unit further behind.
        """
        if self.parent is None:
            return 0
        return self.parent.lag + (1 if isinstance(self.parent.window, SessionWindow) else 0)

    @property
    def grid(self) -> tuple[int, int]:
        """Step and offset that the watermark need not be finer than; of a session a hundredth of its gap."""
        if isinstance(self.window, SessionWindow):
            return max(1, self.window.gap // _SESSION_GRAIN), 0
        return self.window.grid.step, self.window.grid.offset

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys inside the engine; a stream without keys has one constant key."""
        return tuple(f"key{i}" for i in range(len(self.keys))) or (_NO_KEY,)

    @cached_property
    def accumulators(self) -> Accumulators:
        """The fields of the partial rows with their types."""
        named = [(f"result{i}", operation) for i, (_, operation) in enumerate(self.results)]
        partials = self.transformations.shape.groupBy().agg(*Accumulators.aggregations(named))
        return Accumulators(named, partials.schema)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must not change between two runs, because saved partial rows would no longer fit."""
        fixed: dict[str, Any] = {
            "keys": {key.name: key.type.simpleString() for key in self.keys},
            "aggregates": list(self.computes),
            "accumulators": self.accumulators.shape,
        }
        if isinstance(self.window, SessionWindow):
            fixed["session window"] = [self.window.gap, self.window.max_duration]
        return fixed

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of :meth:`partials` that tell partial rows from the others, and those from each other."""
        return ("verdict", "substream") if several_substreams(self.inputs) else ("verdict",)

    def operator(self, partitions: int) -> WindowOperator:
        """A new window operator without state."""
        if isinstance(self.window, SessionWindow):
            gap, longest = self.window.gap, self.window.max_duration
            return SessionWindows(gap, longest, self.key_names, self.accumulators, partitions)
        return SlidingWindows(self.window.grid, self.key_names, self.accumulators, partitions)

    def judged(self, rows: DataFrame, operator: WindowOperator) -> DataFrame:
        """Rows that have gone through the user's transformations, with why they are dropped, if so."""
        reason = F.when(F.col(TIME).isNull(), NULL_TIMESTAMP).when(operator.is_late(TIME), LATE)
        return rows.withColumn(DROPPED, reason)

    def partials(self, judged: DataFrame, operator: WindowOperator, detail: ProgressDetail) -> DataFrame:
        """Partial rows of the accepted rows, and one row per verdict and substream of the others.

        One pass does both: the key, the frame and the columns of a row that is not accepted are nulled, so that it is
        counted without being aggregated (a late row must not overflow a sum that it is not part of).
        """
        rows = judged
        if detail is ProgressDetail.EACH:
            copies = self._once("copies", build=lambda: F.explode(F.array(F.lit(False), F.lit(True))))
            rows = rows.withColumn(COPY, copies).where(F.col(COPY) | F.col(KEPT))
        nulled = self._once("nulled", detail, build=lambda: self._nulled(judged.columns, operator, detail))
        labels = self._once("labels", build=self._labels)
        sums = self._once("sums", build=lambda: self._sums(operator))
        return sums.agg(nulled.select(rows), labels)

    @cached_property
    def _once(self) -> Once:
        return Once()

    def _nulled(self, columns: list[str], operator: WindowOperator, detail: ProgressDetail) -> CompiledColumns:
        copy = F.col(COPY) if detail is ProgressDetail.EACH else ~F.col(KEPT)
        kept = F.col(KEPT) & F.col(DROPPED).isNull() & ~copy
        dropped = F.when(F.col(DROPPED) == LATE, RowKind.LATE.value).otherwise(RowKind.NULL_TIMESTAMP.value)
        verdict = F.when(kept, RowKind.ACCEPTED.value).when(copy, RowKind.PROGRESS_ONLY.value).otherwise(dropped)
        visible = [name for name in columns if name not in {DROPPED, KEPT, SUBSTREAM}]
        return CompiledColumns(
            [
                *(F.when(kept, F.col(quoted(name))).alias(name) for name in visible),
                F.when(kept, operator.frame_of(F.col(TIME))).alias(FRAME),
                verdict.alias(VERDICT),
                F.when(kept, "").otherwise(F.col(SUBSTREAM)).alias(DROPPED_OF),
                F.col(TIME).alias(HIGHEST),
            ]
        )

    def _labels(self) -> CompiledColumns:
        # Keys are computed from the nulled columns, and nulled again, as one may turn a null into something else.
        keys = [key.column for key in self.keys] or [F.lit(0)]
        named = [F.when(F.col(FRAME).isNotNull(), key).alias(name) for name, key in self._named(keys)]
        hidden = {"frame": FRAME, "verdict": VERDICT, "substream": DROPPED_OF}
        return CompiledColumns([*named, *(F.col(hidden[name]).alias(name) for name in ("frame", *self.labels))])

    def _sums(self, operator: WindowOperator) -> CompiledColumns:
        bounds = [column.alias(name) for name, column in operator.bounds(F.col(TIME)).items()]
        aggregations = Accumulators.aggregations(self.accumulators.results)
        return CompiledColumns([F.max(HIGHEST).alias("highest"), *bounds, *aggregations])

    @cached_property
    def totals(self) -> tuple[CompiledColumns, CompiledColumns]:
        """Of :meth:`partials`: labels to group by; their rows, least and greatest frame, events and highest time."""
        frames = F.min("frame"), F.max("frame")
        sums = F.count(F.lit(1)), *frames, F.sum("row_count"), F.max("highest")
        return CompiledColumns(self.labels), CompiledColumns(sums)

    def _named(self, keys: list[Column]) -> list[tuple[str, Column]]:
        return list(zip(self.key_names, keys, strict=True))

    def output(self, windows: DataFrame) -> DataFrame:
        """Result rows under the user's names, the window as a struct of two timestamps, and their event time."""
        return self._once("output", build=self._output).select(windows)

    def _output(self) -> CompiledColumns:
        start, end = F.timestamp_micros("start").alias("start"), F.timestamp_micros("end").alias("end")
        grouped = {self.window.name: F.struct(start, end)}
        grouped |= {key.name: F.col(name) for key, name in zip(self.keys, self.key_names, strict=False)}
        results = [F.col(f"result{i}").alias(name) for i, (name, _) in enumerate(self.results)]
        hidden = [(F.col("end") - 1).alias(TIME), F.lit(ONLY_SUBSTREAM).alias(SUBSTREAM)]
        return CompiledColumns([*(grouped[name].alias(name) for name in self.order), *results, *hidden])

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        keys = [key.column for key in self.keys] or [F.lit(0)]
        named = [key.alias(name) for name, key in self._named(keys)]
        grouped = self.transformations.shape.groupBy(*named).agg(*Accumulators.aggregations(self.accumulators.results))
        bounds = (F.lit(0).cast("long").alias(bound) for bound in ("start", "end"))
        return self.output(grouped.select(*self.key_names, *bounds, *self.accumulators.finish()))

    def late_shape(self) -> DataFrame:
        """A DataFrame with the schema of the rows that are dropped here, for analysis only.

        Raises:
            AnalysisError: Nothing can be late here, or a column of the user's has the name of an added one.
        """
        if self.parent is not None:
            message = "late rows: the rows of a window are never late for the next one. Ask the first window for them."
            raise AnalysisError(message)
        taken = [name for name in self.transformations.shape.columns if name in LATE_COLUMNS]
        if taken:
            message = f"late rows: the column {taken[0]!r} exists already and is added to late rows. Rename yours."
            raise AnalysisError(message)
        return dropped_rows(self.transformations.shape.withColumns({DROPPED: F.lit(LATE), KEPT: F.lit(True)}), None)


def dropped_rows(judged: DataFrame, watermark: int | None) -> DataFrame:
    """The dropped rows as they came, with substream, the watermark that judged them, and the reason."""
    judged_by = F.lit(None).cast("timestamp") if watermark is None else F.timestamp_micros(F.lit(watermark))
    added = zip(LATE_COLUMNS, (F.col(SUBSTREAM), judged_by, F.col(DROPPED)), strict=True)
    return judged.where(F.col(KEPT) & F.col(DROPPED).isNotNull()).withColumns(dict(added)).drop(DROPPED, *HIDDEN)
