"""Joins of two streams with a bound on the distance of their event times: the stage, from the user's condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkjet.catalyst.columns import HIDDEN, ONLY_SUBSTREAM, SUBSTREAM, TIME, CompiledColumns, Once, quoted, visible
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.join_conditions import JoinCondition, join_condition, place, sided, spark_join
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, listed
from sparkjet.errors import AnalysisError
from sparkjet.plan.dropped_rows import DROPPED
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.partial_rows import DROPPED_OF, HIGHEST, KIND, ProgressDetail, is_kept, labels, with_copies
from sparkjet.plan.stage import Feed, Stage, fields_of
from sparkjet.plan.transformations import Link
from sparkjet.snapshots.record import Shown
from sparkjet.stateful.interval_join import FOREVER, IntervalJoin
from sparkjet.stateful.join_type import JoinType
from sparkjet.time.durations import format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.join_conditions import JoinedColumn
    from sparkjet.catalyst.unsaid import Unsaid
    from sparkjet.plan.transformations import Transformations
    from sparkjet.state import Side


class JoinRows:
    """The expressions of one side; each is built once, because Spark would compile it again otherwise.

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
        """Totals of :meth:`of`: labels to group by; their rows, least and greatest time, events and highest time."""

    def of(self, judged: DataFrame, side: Side, detail: ProgressDetail) -> DataFrame:  # noqa: ARG002 - Intake's signature
        """The accepted rows, and the others with only the columns by which they are counted."""
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


SIDES = ("left", "right")
_GRAIN = 100
_STEPS = (3600, 600, 60, 10, 1, 0.1, 0.01)
"""Round numbers of seconds, so that their common divisor with the steps of windows is not small."""


@dataclass(frozen=True)
class TimedFeed:
    """A stream to be joined: its rows, and the event times in its columns."""

    feed: Feed
    times: tuple[EventTime, ...]

    @cached_property
    def rows(self) -> DataFrame:
        """The rows without the hidden columns, for analysis only."""
        return self.feed.transformations.shape.drop(*HIDDEN)

    @property
    def columns(self) -> list[list[int]]:
        """For each event time, the numbers of the columns that hold it."""
        return [time.columns(self.rows) for time in self.times]

    def timed_by(self, number: int) -> Feed:
        """The feed with one of its event times as the time of its rows, which at first is the first one."""
        if number == 0:
            return self.feed
        column = self.rows.columns[self.columns[number][0]]
        return replace(self.feed, transformations=retimed(self.feed.transformations, F.col(f"`{column}`")))


@dataclass(frozen=True, eq=False)
class IntervalJoinStage(Stage):
    """A join of two streams.

    Attributes:
        join_type: Which rows the join returns.
        condition: The condition, split into parts.
        lower: Least difference of the right event time from the left one, in microseconds.
        upper: Greatest difference. For inner joins, either may be :data:`FOREVER`.
        left: The left rows.
        right: The right rows.
        joined: The join as Spark has analyzed it, for analysis only.
    """

    join_type: JoinType
    condition: JoinCondition
    lower: int
    upper: int
    left: Feed
    right: Feed
    joined: DataFrame

    own_watermarks = True

    @property
    def feeds(self) -> tuple[Feed, Feed]:
        """See :attr:`Stage.feeds`."""
        return self.left, self.right

    @cached_property
    def intakes(self) -> tuple[JoinRows, JoinRows]:
        """See :attr:`Stage.intakes`."""
        left, right = (
            JoinRows(side, by_substream=feed.by_substream) for side, feed in zip(SIDES, self.feeds, strict=True)
        )
        return left, right

    @property
    def delay(self) -> int:
        """See :attr:`Stage.delay`.

        A left row may be as old as a right row that is in time allows, and vice versa.
        """
        return max(0, self.upper, -self.lower)

    @property
    def grid(self) -> tuple[int, int]:
        """About a hundredth of the bound: the times at which rows remain without a partner need not be finer."""
        finite = [abs(bound) for bound in (self.lower, self.upper) if abs(bound) < FOREVER]
        finest = max(finite, default=FOREVER) / (_GRAIN * 1_000_000)
        return round(next((step for step in _STEPS if step <= finest), _STEPS[-1]) * 1_000_000), 0

    @property
    def waits(self) -> bool:
        """See :attr:`Stage.waits`; a pair is a result as soon as its later row arrives."""
        return self.join_type not in {JoinType.INNER, JoinType.SEMI}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because stored rows would be missing, or not fit."""
        return {
            "join": self.join_type.value,
            "on": self.condition.text,
            "bounds": [self.lower, self.upper],
            **{
                side: [f"{field.name} {field.dataType.simpleString()}" for field in _own_columns(feed)]
                for side, feed in zip(SIDES, self.feeds, strict=True)
            },
        }

    @property
    def shown(self) -> Shown:
        """See :attr:`Stage.shown`."""
        return Shown(sides=[fields_of(_own_columns(feed)) for feed in self.feeds])

    @property
    def unsaid(self) -> Unsaid:
        """See :attr:`Stage.unsaid`."""
        return {f"on, {what}": value for what, value in self.condition.unsaid.items()}

    def operator(self, partitions: int) -> IntervalJoin:
        """A new operator without state."""
        left, right = (
            StructType([StructField(place(side, i), field.dataType) for i, field in enumerate(_own_columns(feed))])
            for side, feed in zip(SIDES, self.feeds, strict=True)
        )
        bounds = self.lower, self.upper
        return IntervalJoin(
            self.join_type, *bounds, self.condition.keys, self.condition.rest, (left, right), partitions
        )

    def output(self, rows: DataFrame) -> DataFrame:
        """Joined rows under the user's names, with the first of their event times."""
        return self._columns.select(rows)

    @cached_property
    def _columns(self) -> IdentifiedColumns:
        columns = [each.column for each in self.condition.columns]
        return IdentifiedColumns([*columns, self._time, F.lit(ONLY_SUBSTREAM)], self.shape())

    @property
    def _time(self) -> Column:
        first = next((each for each in self.condition.columns if each.times), None)
        return F.lit(None).cast("long") if first is None else _time_of(first)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        return self._shape

    @cached_property
    def _shape(self) -> DataFrame:
        return self.joined.withColumns({TIME: F.lit(None).cast("long"), SUBSTREAM: F.lit(ONLY_SUBSTREAM)})

    def late_shape(self) -> DataFrame:
        """A DataFrame with the schema of the rows that are dropped on either side, for analysis only."""
        sides = [feed.late_shape() for feed in self.feeds if feed.parent is None]
        if not sides:
            return self.left.late_shape()
        try:
            return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), sides)
        except AnalysisException as error:
            message = (
                "late rows: a column has different types in the two streams that are joined. Rename it in one of them "
                f"before the join. {error}"
            )
            raise AnalysisError(message) from error

    @property
    def times(self) -> tuple[EventTime, ...]:
        """The event times of the results: the columns that hold one, the first event time first.

        Empty without a bound in both directions: a pair that is yet to come may have any time.
        """
        if not -FOREVER < self.lower <= self.upper < FOREVER:
            return ()
        output = zip(self.condition.columns, listed(analyzed(self._shape).output()), strict=False)
        found: dict[frozenset[str], EventTime] = {}
        for column, attribute in output:
            if column.times and column.times not in found:
                remedy = "Give the new column another name."
                found[column.times] = EventTime(column.name, [attribute_id(attribute)], "the join", remedy)
        return tuple(found.values())


def interval_join(left: TimedFeed, right: TimedFeed, on: Any, how: str) -> IntervalJoinStage:
    """The stage of a join."""
    join_type = JoinType.of(how)
    for side, timed in zip(SIDES, (left, right), strict=True):
        names = timed.rows.columns
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = (
                f"join: the {side} stream has two columns {twice[0]!r}. Drop one of them first, or rename it before "
                "they come together."
            )
            raise AnalysisError(message)
    if isinstance(on, Column):
        on = sided(on, left.rows, right.rows)
    joined = spark_join((left.rows, right.rows), on, how)
    condition = join_condition(joined, (left.columns, right.columns))
    lower, upper = _bounds(condition, (left, right), join_type)
    feeds = [timed.timed_by(number) for timed, number in zip((left, right), condition.times, strict=True)]
    return IntervalJoinStage(join_type, condition, lower, upper, feeds[0], feeds[1], joined)


def retimed(chain: Transformations, time: Column) -> Transformations:
    """A chain whose rows have another column as their event time."""
    hidden = F.unix_micros(time)
    link = Link(lambda frame: frame.withColumn(TIME, hidden), lambda frame: frame.withColumn(TIME, hidden))
    return replace(chain, shape=link.plain(chain.shape), links=(*chain.links, link))


def _own_columns(feed: Feed) -> list[StructField]:
    return [field for field in feed.transformations.shape.schema if field.name not in HIDDEN]


def _time_of(column: JoinedColumn) -> Column:
    times = [F.col(f"{side}_time") for side in SIDES if side in column.times]
    return times[0] if len(times) == 1 else F.coalesce(*times)


def _bounds(condition: JoinCondition, sides: Sequence[TimedFeed], join_type: JoinType) -> tuple[int, int]:
    """Both bounds of a condition, which must allow a join."""
    left, right = (timed.times[number].name for timed, number in zip(sides, condition.times, strict=True))
    lower, upper = condition.bounds.lower, condition.bounds.upper
    if join_type is JoinType.INNER:
        # As in Spark: nothing waits for the end of rows that are held forever.
        lower, upper = -FOREVER if lower is None else lower, FOREVER if upper is None else upper
    if lower is None or upper is None:
        missing = []
        if lower is None:
            missing.append(f"how much earlier than {left!r} it may be, e.g. {right} >= {left}")
        if upper is None:
            missing.append(f"how much later, e.g. {right} <= {left} + INTERVAL 1 HOUR")
        message = (
            f"join: the condition of a join that is not an inner one must bound the event time {right!r} of the right "
            "stream in both directions, as no row would ever be known to have no partner otherwise. It "
            f"does not say {' nor '.join(missing)}. A comparison counts if it is one of those joined by AND, "
            "and compares the columns of withWatermark(…) themselves."
        )
        raise AnalysisError(message)
    if lower > upper:
        message = (
            f"join: the condition can never be true: {right!r} would be at least {_signed(lower)} and at most "
            f"{_signed(upper)} after {left!r}. Look at the signs of the intervals."
        )
        raise AnalysisError(message)
    if not condition.keys:
        message = (
            "join: the condition has no equality of a column of the left stream and one of the right stream, by which "
            "rows are distributed. Add one, e.g. a.id = b.id; or a constant column on both sides, if one task is to "
            "compare each row with each."
        )
        raise AnalysisError(message)
    return lower, upper


def _signed(microseconds: int) -> str:
    return f"{'-' if microseconds < 0 else ''}{format_duration(abs(microseconds))}"
