"""Stateful functions: a user's Python function over the rows and the state of each key, as a stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkjet.catalyst.columns import HIDDEN, ONLY_SUBSTREAM, SUBSTREAM, TIME, CompiledColumns, Once, quoted
from sparkjet.plan.aggregation import key_name
from sparkjet.plan.raw_rows import RawRows
from sparkjet.plan.stage import Feed, Stage, fields_of
from sparkjet.snapshots.record import Shown
from sparkjet.stateful.functions.operator import FunctionOperator
from sparkjet.stateful.functions.user_function import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.grouping import Key
    from sparkjet.stateful.functions.user_function import UserFunction

_MILLISECOND = 1_000


@dataclass(frozen=True, eq=False)
class StatefulFunction(Stage):
    """``applyInPandasWithState`` or ``transformWithState``.

    Attributes:
        feed: The rows for the function.
        keys: The columns by which they are grouped.
        function: The function.
        event_time: The column of its output that is the event time for further stages; None if there is none.
        initial: Initial state, ``(keys…, row)`` with the keys under their inner names; None without initial state.
    """

    feed: Feed
    keys: tuple[Key, ...]
    function: UserFunction
    event_time: str | None = None
    initial: DataFrame | None = None

    @property
    def feeds(self) -> tuple[Feed]:
        """See :attr:`Stage.feeds`."""
        return (self.feed,)

    @property
    def grid(self) -> tuple[int, int]:
        """Milliseconds, the only unit that users' functions see."""
        return _MILLISECOND, 0

    @property
    def uses_clock(self) -> bool:
        """See :attr:`Stage.uses_clock`."""
        return self.function.domain is TimeDomain.CLOCK

    @property
    def may_be_late(self) -> bool:
        """See :attr:`Stage.may_be_late`; the function may return any event time."""
        return self.event_time is not None

    @cached_property
    def intakes(self) -> tuple[RawRows]:
        """See :attr:`Stage.intakes`."""
        columns = {key_name(number): key.column for number, key in enumerate(self.keys)}
        # Rows are judged by their time only if the function waits for the watermark.
        return (RawRows(columns, by_substream=self.feed.by_substream, timed=self.waits),)

    @property
    def waits(self) -> bool:
        """See :attr:`Stage.waits`."""
        return self.function.domain is TimeDomain.WATERMARK

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because saved state would no longer fit."""
        return {
            "keys": {key.name: key.type.simpleString() for key in self.keys},
            "function": self.function.name,
            "time": self.function.domain.value,
            "state": self.function.variables,
        }

    @property
    def shown(self) -> Shown:
        """See :attr:`Stage.shown`."""
        keys = fields_of(StructField(key.name, key.type) for key in self.keys)
        return Shown(keys=keys, state=fields_of(self.function.payload))

    def operator(self, partitions: int) -> FunctionOperator:
        """A new operator without state."""
        shape = self.feed.transformations.shape
        keys = StructType([StructField(key_name(number), key.type) for number, key in enumerate(self.keys)])
        rows = shape.drop(*HIDDEN).schema
        return FunctionOperator(self.function, keys, rows, shape.sparkSession, partitions, self.initial)

    def output(self, rows: DataFrame) -> DataFrame:
        """The rows that the function has returned, with the hidden columns."""
        return self._once("output", build=self._output).select(rows)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        nothing = F.lit(None).cast(self.function.output).alias("emitted")
        return self.output(self.feed.transformations.shape.select(nothing).select("emitted.*"))

    @cached_property
    def _once(self) -> Once:
        return Once()

    def _output(self) -> CompiledColumns:
        time = F.lit(None).cast("long") if self.event_time is None else F.unix_micros(quoted(self.event_time))
        hidden = time.alias(TIME), F.lit(ONLY_SUBSTREAM).alias(SUBSTREAM)
        return CompiledColumns([*(F.col(quoted(name)) for name in self.function.output.names), *hidden])
