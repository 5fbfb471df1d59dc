"""Aggregations: the expressions from rows to partial rows, and from the rows of an operator to results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from sparkjet.catalyst.aggregate_calls import GroupWindow
from sparkjet.catalyst.columns import HIDDEN, ONLY_SUBSTREAM, SUBSTREAM, TIME, CompiledColumns, Once
from sparkjet.catalyst.expressions import expression_of, parts_of
from sparkjet.catalyst.logical_plans import analyzed, children, kind_of, listed, selected
from sparkjet.catalyst.tries import never_raises
from sparkjet.plan.partial_rows import PartialRows
from sparkjet.plan.reads import Reads
from sparkjet.plan.stage import Feed, Stage, fields_of
from sparkjet.snapshots.record import Shown
from sparkjet.windows import Accumulators, SessionWindow
from sparkjet.windows.accumulators import lacking_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

    from sparkjet.aggregates.operation import AggregateOperation
    from sparkjet.catalyst.aggregate_calls import ResultColumn
    from sparkjet.catalyst.unsaid import Unsaid
    from sparkjet.plan.grouping import Grouping, Key

_NO_KEY = "key0"
_CALL = "AggregateExpression"


def key_name(number: int) -> str:
    """The engine's name for a key."""
    return f"key{number}"


def result_name(number: int) -> str:
    """The engine's name for the result of an aggregate."""
    return f"result{number}"


def window_column() -> Column:
    """The window of a row of an operator, as Spark shows windows."""
    return F.struct(F.timestamp_micros("start").alias("start"), F.timestamp_micros("end").alias("end"))


def group_window(grouping: Grouping) -> GroupWindow | None:
    """The window of a grouping, in the form in which aggregates may refer to it; None without a window."""
    if grouping.window is None:
        return None
    name, held = grouping.window.name, () if grouping.by_key is None else grouping.by_key.keys
    return GroupWindow(name, window_column(), next((key.column for key in held if key.name == name), None))


@dataclass(frozen=True, eq=False)
class ResolvedAggregate:
    """An aggregate over some rows: its operation, a text for what it computes, and what the text leaves out."""

    computes: str
    operation: AggregateOperation
    unsaid: Unsaid


@dataclass(frozen=True, eq=False)
class Aggregation(Stage):
    """One ``groupBy(…).agg(…)``.

    Inside the engine, keys are named ``key0…`` and results ``result0…``, so that no name chosen by a user can collide.

    Attributes:
        feed: The rows that are aggregated.
        grouping: The keys, and the window if there is one.
        aggregates: The aggregates to compute.
        columns: The columns of the result after the grouping columns, computed from keys and results by their inner
        names.
        lacking: Numbers of the aggregates that were added later, and so have not seen all rows of the state.
    """

    feed: Feed
    grouping: Grouping
    aggregates: tuple[ResolvedAggregate, ...]
    columns: tuple[ResultColumn, ...]
    lacking: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The grouping columns without the window."""
        return self.grouping.keys

    @property
    def feeds(self) -> tuple[Feed]:
        """See :attr:`Stage.feeds`."""
        return (self.feed,)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys inside the engine; without keys there is a single constant one."""
        return tuple(map(key_name, range(len(self.keys)))) or (_NO_KEY,)

    @cached_property
    def accumulators(self) -> Accumulators:
        """The fields of the partial rows with their types."""
        return Accumulators(self._named, self.accumulated.schema, self.lacking)

    @cached_property
    def accumulated(self) -> DataFrame:
        """The fields over all rows, for analysis only."""
        return self.feed.shape.groupBy().agg(*Accumulators.aggregations(self._named))

    @cached_property
    def _named(self) -> list[tuple[str, AggregateOperation]]:
        named = [(result_name(i), aggregate.operation) for i, aggregate in enumerate(self.aggregates)]
        return Accumulators.with_lacking(named, self.lacking)

    @property
    def untried(self) -> str | None:
        """See :attr:`Stage.untried`."""
        rows, session = self.feed.transformations.shape, self.feed.shape.sparkSession
        if self.feed.time is not None and not never_raises(selected(rows, self.feed.time), session):
            return "the event time"
        for key in self.keys:
            if not never_raises(selected(rows, key.column), session):
                return f"the key {key.name!r}"
        for aggregate in self.aggregates:
            columns = Accumulators.aggregations([("result", aggregate.operation)])
            aggregated = analyzed(self.feed.shape.groupBy().agg(*columns)).expressions()
            calls = [part for each in listed(aggregated) for part in parts_of(each) if kind_of(part) == _CALL]
            arguments = [each for call in calls for each in children(call.aggregateFunction())]
            if not all(never_raises(each, session) for each in arguments):
                return f"what {aggregate.computes} is computed from"
        return None

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because saved partial rows would no longer fit."""
        return {
            "keys": {key.name: key.type.simpleString() for key in self.keys},
            "aggregates": [aggregate.computes for aggregate in self.aggregates],
            "accumulators": self.accumulators.shape,
            **({"lacking": [*self.lacking]} if self.lacking else {}),
        }

    @cached_property
    def reads(self) -> Reads:
        """The columns behind keys and aggregates."""
        return Reads.of(self)

    @property
    def unsaid(self) -> Unsaid:
        """See :attr:`Stage.unsaid`; by the number of the aggregate, as two may have the same text."""
        return {
            f"aggregate {number}, {aggregate.computes}, {what}": value
            for number, aggregate in enumerate(self.aggregates, 1)
            for what, value in aggregate.unsaid.items()
        } | self.reads.unsaid

    @property
    def shown(self) -> Shown:
        """See :attr:`Stage.shown`; only the columns that results name, as every record contains it."""
        texts = [each.text for each in self.columns]
        rows = self.feed.transformations.shape.drop(*HIDDEN).schema
        return Shown(
            keys=fields_of(StructField(key.name, key.type) for key in self.keys),
            order=list(self.grouping.order),
            results=[(each.name, each.text) for each in self.columns],
            rows=fields_of(field for field in rows if any(field.name.lower() in text.lower() for text in texts)),
        )

    @cached_property
    def intakes(self) -> tuple[PartialRows]:
        """See :attr:`Stage.intakes`."""
        # Only windows need the time of a row.
        timed = self.grouping.window is not None
        labelled, apart = self.feed.by_substream, self.feed.substreams
        intake = PartialRows(self._key_columns, self.accumulators, by_substream=labelled, substreams=apart, timed=timed)
        return (intake,)

    def output(self, rows: DataFrame) -> DataFrame:
        """Result rows under the user's names; a window as a struct of two timestamps, and as their event time."""
        return self._once("output", build=self._output).select(rows)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        named = [key.alias(name) for name, key in self._key_columns.items()]
        grouped = self.feed.shape.groupBy(*named).agg(*Accumulators.aggregations(self.accumulators.results))
        bounds = (F.lit(0).cast("long").alias(bound) for bound in ("start", "end"))
        return self.output(grouped.select(*self.key_names, *bounds, *self.accumulators.finish()))

    @property
    def _key_columns(self) -> dict[str, Column]:
        return dict(zip(self.key_names, [key.column for key in self.keys] or [F.lit(0)], strict=True))

    @cached_property
    def _once(self) -> Once:
        return Once()

    def _output(self) -> CompiledColumns:
        window = self.grouping.window
        grouped = {key.name: key.named(F.col(name)) for key, name in zip(self.keys, self.key_names, strict=False)}
        hidden = []
        if window is not None:
            marker = "spark.sessionWindow" if isinstance(window, SessionWindow) else "spark.timeWindow"
            # Spark's own metadata of a window column, without which F.window_time refuses it.
            grouped[window.name] = window_column().alias(window.name, metadata={marker: True})
            hidden = [(F.col("end") - 1).alias(TIME), F.lit(ONLY_SUBSTREAM).alias(SUBSTREAM)]
        results = [self._result(each).alias(each.name) for each in self.columns]
        return CompiledColumns([*(grouped[name] for name in self.grouping.order), *results, *hidden])

    def computed_from(self, aggregates: Collection[int]) -> list[str]:
        """The columns of the result that are computed from some aggregates, by the aggregates' numbers."""
        return [each.name for each in self.columns if self._computed_from(each, aggregates)]

    def _computed_from(self, result: ResultColumn, aggregates: Collection[int]) -> list[int]:
        if not aggregates:
            return []
        parts = parts_of(expression_of(result.column, self.feed.shape.sparkSession))
        names = {str(part.name()) for part in parts if kind_of(part) == "UnresolvedAttribute"}
        return [number for number in aggregates if result_name(number) in names]

    def _result(self, result: ResultColumn) -> Column:
        """A column of the result, null if an aggregate that it is computed from lacks rows.

        Not only the aggregate: anything computed from it, such as COALESCE(…, 0), would look complete.
        """
        lacked = [F.col(lacking_name(number)) for number in self._computed_from(result, self.lacking)]
        return F.when(reduce(add, lacked) == 0, result.column) if lacked else result.column
