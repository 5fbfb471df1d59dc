"""Aggregations: one level of windows each, as expressions from rows to partial rows and from windows to results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import ONLY_SUBSTREAM, SUBSTREAM, TIME, CompiledColumns, Once
from sparkjet.catalyst.expressions import label
from sparkjet.errors import AnalysisError
from sparkjet.plan.dropped_rows import dropped_shape
from sparkjet.plan.inputs import several_substreams
from sparkjet.plan.partial_rows import PartialRows
from sparkjet.windows import Accumulators, SessionWindow, SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.aggregates.operation import AggregateOperation
    from sparkjet.catalyst.aggregate_calls import ResultColumn
    from sparkjet.plan.grouping import Grouping, Key
    from sparkjet.plan.inputs import Input
    from sparkjet.plan.transformations import Transformations
    from sparkjet.windows import Window, WindowOperator

_NO_KEY = "key0"
_SESSION_GRAIN = 100
_USUAL_GAP = 1_000_000
"""Stands for gaps of which the driver knows nothing."""


def key_name(number: int) -> str:
    """Name of a key inside the engine."""
    return f"key{number}"


def result_name(number: int) -> str:
    """Name of the result of an aggregate inside the engine."""
    return f"result{number}"


@dataclass(frozen=True, eq=False)
class ResolvedAggregate:
    """An aggregate over the rows of one aggregation: its operation, and in words what it computes."""

    computes: str
    operation: AggregateOperation


@dataclass(frozen=True, eq=False)
class WindowedAggregation:
    """One ``groupBy(window, keys).agg(…)``; pure description, the state lives in the operator it makes.

    Inside the engine keys are named ``key0…`` and results ``result0…``, so that no name a user chose can collide.

    Attributes:
        transformations: From the rows that come in (an input's, or the results of ``parent``) to those that
            are aggregated.
        inputs: The inputs at the root.
        parent: The aggregation whose results are aggregated here, None at the root.
        grouping: The window and the keys.
        aggregates: What is computed in each window.
        columns: The columns of the result that follow the grouping ones, from keys and results by their names inside.
    """

    transformations: Transformations
    inputs: tuple[Input, ...]
    parent: WindowedAggregation | None
    grouping: Grouping
    aggregates: tuple[ResolvedAggregate, ...]
    columns: tuple[ResultColumn, ...]

    @property
    def window(self) -> Window | SessionWindow:
        """The window."""
        return self.grouping.window

    @property
    def keys(self) -> tuple[Key, ...]:
        """The other grouping columns."""
        return self.grouping.keys

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
        """Step and offset that the watermark need not be finer than; of a session a hundredth of a gap."""
        if isinstance(self.window, SessionWindow):
            gap = self.window.gap if isinstance(self.window.gap, int) else _USUAL_GAP
            return max(1, gap // _SESSION_GRAIN), 0
        return self.window.grid.ends.step, self.window.grid.ends.offset

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys inside the engine; a stream without keys has one constant key."""
        return tuple(map(key_name, range(len(self.keys)))) or (_NO_KEY,)

    @cached_property
    def accumulators(self) -> Accumulators:
        """The fields of the partial rows with their types."""
        named = [(result_name(i), aggregate.operation) for i, aggregate in enumerate(self.aggregates)]
        partials = self.transformations.shape.groupBy().agg(*Accumulators.aggregations(named))
        return Accumulators(named, partials.schema)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must not change between two runs, because saved partial rows would no longer fit."""
        fixed: dict[str, Any] = {
            "keys": {key.name: key.type.simpleString() for key in self.keys},
            "aggregates": [aggregate.computes for aggregate in self.aggregates],
            "accumulators": self.accumulators.shape,
        }
        if isinstance(self.window, SessionWindow):
            gap = self.window.gap if isinstance(self.window.gap, int) else label(self.window.gap)
            fixed["session window"] = [gap, self.window.max_duration]
        return fixed

    def operator(self, partitions: int) -> WindowOperator:
        """A new window operator without state."""
        if isinstance(self.window, SessionWindow):
            gap, longest = self.window.gap, self.window.max_duration
            return SessionWindows(gap, longest, self.key_names, self.accumulators, partitions)
        return SlidingWindows(self.window.grid, self.key_names, self.accumulators, partitions)

    @cached_property
    def partial_rows(self) -> PartialRows:
        """From judged rows to partial rows."""
        return PartialRows(self._key_columns, self.accumulators, by_substream=several_substreams(self.inputs))

    @property
    def _key_columns(self) -> dict[str, Column]:
        return dict(zip(self.key_names, [key.column for key in self.keys] or [F.lit(0)], strict=True))

    @cached_property
    def _once(self) -> Once:
        return Once()

    def output(self, windows: DataFrame) -> DataFrame:
        """Result rows under the user's names, the window as a struct of two timestamps, and their event time."""
        return self._once("output", build=self._output).select(windows)

    def _output(self) -> CompiledColumns:
        start, end = F.timestamp_micros("start").alias("start"), F.timestamp_micros("end").alias("end")
        marker = "spark.sessionWindow" if isinstance(self.window, SessionWindow) else "spark.timeWindow"
        # Spark's own mark of a window column, without which F.window_time refuses it.
        grouped = {self.window.name: F.struct(start, end).alias(self.window.name, metadata={marker: True})}
        grouped |= {key.name: F.col(name).alias(key.name) for key, name in zip(self.keys, self.key_names, strict=False)}
        results = [each.column.alias(each.name) for each in self.columns]
        hidden = [(F.col("end") - 1).alias(TIME), F.lit(ONLY_SUBSTREAM).alias(SUBSTREAM)]
        return CompiledColumns([*(grouped[name] for name in self.grouping.order), *results, *hidden])

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        named = [key.alias(name) for name, key in self._key_columns.items()]
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
        return dropped_shape(self.transformations.shape)
