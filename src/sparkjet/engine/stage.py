"""Stages: one level of windows each, as expressions from rows to partial rows and from windows to results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.columns import HIDDEN, ONLY_SUBSTREAM, SUBSTREAM, TIME, quoted
from sparkjet.errors import AnalysisError
from sparkjet.windows import Accumulators, SessionWindow, SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.aggregate import AggregateOperation
    from sparkjet.chain import Steps
    from sparkjet.engine.inputs import Input
    from sparkjet.windows import Window, WindowOperator

FRAME = "_sparkjet_frame"
DROPPED = "_sparkjet_dropped"
"""Why a row was not accepted and of which substream it is, ``reason:substream``; null for accepted rows."""
LATE = "late"
NULL_TIMESTAMP = "null_timestamp"
LATE_COLUMNS = ("_substream", "_watermark", "_reason")
"""What is added to the rows that are dropped."""
_NO_KEY = "key0"
_SESSION_GRAIN = 100


@dataclass(frozen=True)
class Key:
    """A grouping column: its name in the result, how it is computed, its type."""

    name: str
    column: Column
    type: DataType


@dataclass(frozen=True, eq=False)
class Stage:
    """One ``groupBy(window, keys).agg(…)``; pure description, the state lives in the operator it makes.

    Inside the engine keys are named ``key0…`` and results ``result0…``, so that no name a user chose can collide.

    Attributes:
        steps: From the rows that come in (an input's, or the results of ``parent``) to those that are aggregated.
        inputs: The inputs at the root.
        parent: The stage whose results are aggregated here, None at the root.
    """

    steps: Steps
    inputs: tuple[Input, ...]
    parent: Stage | None
    window: Window | SessionWindow
    keys: tuple[Key, ...]
    order: tuple[str, ...]
    computes: tuple[str, ...]
    results: tuple[tuple[str, AggregateOperation], ...]

    @property
    def lineage(self) -> Iterator[Stage]:
        """The stages from the root down to this one."""
        if self.parent is not None:
            yield from self.parent.lineage
        yield self

    @property
    def lag(self) -> int:
        """How far this stage's watermark is behind the query's.

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
        partials = self.steps.shape.groupBy().agg(*Accumulators.aggregations(named))
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

    def operator(self, partitions: int) -> WindowOperator:
        """A new window operator without state."""
        if isinstance(self.window, SessionWindow):
            gap, longest = self.window.gap, self.window.max_duration
            return SessionWindows(gap, longest, self.key_names, self.accumulators, partitions)
        return SlidingWindows(self.window.grid, self.key_names, self.accumulators, partitions)

    def judged(self, rows: DataFrame, operator: WindowOperator, shared: int) -> DataFrame:
        """The rows after the user's transformations but the first few, with why they are dropped, if so."""
        reason = F.when(F.col(TIME).isNull(), NULL_TIMESTAMP).when(operator.is_late(F.col(TIME)), LATE)
        dropped = F.concat_ws(":", reason, F.col(SUBSTREAM))
        return self.steps.apply(rows, after=shared).withColumn(DROPPED, F.when(reason.isNotNull(), dropped))

    def partials(self, judged: DataFrame, operator: WindowOperator) -> DataFrame:
        """Partial rows of the accepted rows, and one row per reason and substream of the dropped ones.

        One pass does both: the key, the frame and the columns of a dropped row are nulled, so that it is counted
        without being aggregated (a late row must not overflow a sum that it is not part of).
        """
        kept = F.col(DROPPED).isNull()
        keys = [key.column for key in self.keys] or [F.lit(0)]
        visible = [name for name in judged.columns if name != DROPPED]
        nulled = judged.select(
            *(F.when(kept, F.col(quoted(name))).alias(name) for name in visible),
            F.when(kept, operator.frame_of(F.col(TIME))).alias(FRAME),
            DROPPED,
        )
        named = [F.when(kept, key).alias(name) for name, key in zip(self.key_names, keys, strict=True)]
        named += [F.col(FRAME).alias("frame"), F.col(DROPPED).alias("dropped")]
        bounds = [column.alias(name) for name, column in operator.bounds(F.col(TIME)).items()]
        return nulled.groupBy(*named).agg(*bounds, *Accumulators.aggregations(self.accumulators.results))

    def output(self, windows: DataFrame) -> DataFrame:
        """Result rows under the user's names, the window as a struct of two timestamps, and their event time."""
        start, end = F.timestamp_micros("start").alias("start"), F.timestamp_micros("end").alias("end")
        grouped = {self.window.name: F.struct(start, end)}
        grouped |= {key.name: F.col(name) for key, name in zip(self.keys, self.key_names, strict=False)}
        results = [F.col(f"result{i}").alias(name) for i, (name, _) in enumerate(self.results)]
        hidden = [(F.col("end") - 1).alias(TIME), F.lit(ONLY_SUBSTREAM).alias(SUBSTREAM)]
        return windows.select(*(grouped[name].alias(name) for name in self.order), *results, *hidden)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        keys = [key.column for key in self.keys] or [F.lit(0)]
        named = [key.alias(name) for name, key in zip(self.key_names, keys, strict=True)]
        grouped = self.steps.shape.groupBy(*named).agg(*Accumulators.aggregations(self.accumulators.results))
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
        taken = [name for name in self.steps.shape.columns if name in LATE_COLUMNS]
        if taken:
            message = f"late rows: the column {taken[0]!r} exists already and is added to late rows. Rename yours."
            raise AnalysisError(message)
        return dropped_rows(self.steps.shape.withColumn(DROPPED, F.lit(LATE)), None)


def dropped_rows(judged: DataFrame, watermark: int | None) -> DataFrame:
    """The dropped rows as they came, with substream, the watermark that judged them, and the reason."""
    judged_by = F.lit(None).cast("timestamp") if watermark is None else F.timestamp_micros(F.lit(watermark))
    added = zip(LATE_COLUMNS, (F.col(SUBSTREAM), judged_by, F.substring_index(DROPPED, ":", 1)), strict=True)
    return judged.where(F.col(DROPPED).isNotNull()).withColumns(dict(added)).drop(DROPPED, *HIDDEN)
