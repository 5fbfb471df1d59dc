"""Deduplications: the stage of ``dropDuplicates`` and its relatives, by the columns that distinguish rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from sparkjet.catalyst.columns import ONLY_SUBSTREAM, SUBSTREAM, TIME, Once, quoted, visible
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.logical_plans import same_name
from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan.raw_rows import ROW, ROW_TIME, RawRows
from sparkjet.plan.stage import Feed, Stage, fields_of
from sparkjet.snapshots.record import Shown
from sparkjet.stateful.deduplication import Deduplication
from sparkjet.time import delay_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.plan.event_time import EventTime
    from sparkjet.plan.inputs import Input

_GRAIN = 100
"""The watermark is as fine as its delay divided by this."""


@dataclass(frozen=True, eq=False)
class DroppedDuplicates(Stage):
    """The first row of each key among the rows of a stream.

    Inside the engine, the columns of the key are named ``key0…``.

    Attributes:
        feed: The rows.
        subset: The columns of the key.
        keep: How long a key is remembered after the time of its first row, in microseconds; 0 if the time is part of
            the key, None for forever.
        remembered: The same as text, which does not change with the delay of the watermark.
    """

    feed: Feed
    subset: tuple[str, ...]
    keep: int | None
    remembered: str

    @property
    def feeds(self) -> tuple[Feed]:
        """See :attr:`Stage.feeds`."""
        return (self.feed,)

    @cached_property
    def intakes(self) -> tuple[RawRows]:
        """See :attr:`Stage.intakes`."""
        return (RawRows(self._keys, by_substream=self.feed.by_substream, timed=self.keep is not None),)

    @property
    def untried(self) -> None:
        """See :attr:`Stage.untried`; columns are only compared."""
        return

    @property
    def waits(self) -> bool:
        """See :attr:`Stage.waits`; a first row is a result as soon as it arrives."""
        return False

    @property
    def fingerprint(self) -> dict[str, Any]:
        """See :attr:`Stage.fingerprint`."""
        types = dict(self.feed.transformations.shape.select(*map(quoted, self.subset)).dtypes)
        return {"duplicates by": types, "remembered": self.remembered}

    @property
    def shown(self) -> Shown:
        """See :attr:`Stage.shown`."""
        return Shown(keys=fields_of(self.feed.transformations.shape.select(*map(quoted, self.subset)).schema))

    @property
    def may_be_late(self) -> bool:
        """See :attr:`Stage.may_be_late`."""
        return self.keep is None and bool(self.feed.inputs)

    @property
    def grid(self) -> tuple[int, int]:
        """Step and offset that the watermark need not be finer than: a hundredth of its delay."""
        return max(1, (_longest_delay(self.feed.inputs) or 0) // _GRAIN), 0

    def operator(self, partitions: int) -> Deduplication:
        """A new operator without state."""
        return Deduplication(self.keep, list(self._keys), partitions)

    def output(self, rows: DataFrame) -> DataFrame:
        """The rows as they arrived, with the same columns: the user's references to them stay valid."""
        return self._once("output", build=self._output).select(rows)

    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""
        rows = self.feed.transformations.shape
        row = F.struct(*(quoted(name) for name in visible(rows))).alias(ROW)
        arrived = rows.select(F.lit(None).cast("long").alias(ROW_TIME), row)
        # Not from those rows: Spark would give the columns new identities, as these are already in its plan.
        return self.output(rows.sparkSession.createDataFrame([], arrived.schema))

    @property
    def _keys(self) -> dict[str, Column]:
        return {f"key{number}": F.col(quoted(name)) for number, name in enumerate(self.subset)}

    @cached_property
    def _once(self) -> Once:
        return Once()

    def _output(self) -> IdentifiedColumns:
        rows = self.feed.transformations.shape
        hidden = {TIME: F.col(ROW_TIME), SUBSTREAM: F.lit(ONLY_SUBSTREAM)}
        return IdentifiedColumns([hidden.get(name, F.col(f"{ROW}.{quoted(name)}")) for name in rows.columns], rows)


def dropped_duplicates(
    feed: Feed, event_time: EventTime | None, subset: Sequence[str] | None, method: str, *, within: bool = False
) -> DroppedDuplicates:
    """The stage of one of the methods that drop duplicates."""
    rows = feed.transformations.shape
    names = _columns(rows, subset, method)
    if within:
        if event_time is None:
            raise AnalysisError(f'{method}: it needs a watermark; call withWatermark("<event time>", "<lag>") first.')
        return DroppedDuplicates(feed, names, _known_delay(feed, method), "within the delay of the watermark")
    if event_time is not None and event_time.is_among(rows, names, method):
        return DroppedDuplicates(feed, names, 0, "until the watermark has passed the event time")
    return DroppedDuplicates(feed, names, None, "forever")


def _columns(rows: DataFrame, subset: Sequence[str] | None, method: str) -> tuple[str, ...]:
    known = visible(rows)
    if subset is None:
        names = known
    elif isinstance(subset, str) or not all(isinstance(name, str) for name in subset):
        raise AnalysisError(f"{method}: subset={subset!r} must be a list of names of columns, e.g. {known[:1]!r}.")
    else:
        names = list(dict.fromkeys(subset))
    if not names:
        raise AnalysisError(f"{method}: subset=[] names no column. Leave it out, and all columns tell rows apart.")
    for name in names:
        if not any(same_name(rows, name, each) for each in known):
            raise AnalysisError(f"{method}: {name!r} is not a column; {nearest(name, known)}")
    for field in rows.select(*map(quoted, names)).schema:
        if isinstance(field.dataType, MapType | VariantType):
            message = (
                f"{method}: {field.name!r} is of type {field.dataType.simpleString()}, which cannot be compared. Name "
                "the columns that tell rows apart."
            )
            raise AnalysisError(message)
    return tuple(names)


def _longest_delay(inputs: Sequence[Input]) -> int | None:
    found = [delay for each in inputs if (delay := delay_of(each.watermark.policy)) is not None]
    return max(found) if found and len(found) == len(inputs) else None


def _known_delay(feed: Feed, method: str) -> int:
    """How long a key is remembered: the longest delay of the inputs, so that it is right for the rows of each."""
    delay = _longest_delay(feed.inputs)
    if delay is None:
        message = (
            f"{method}: the watermark policy does not say how far an event may be behind, for so long are keys "
            "remembered. Give its settings an attribute lag, in microseconds."
        )
        raise AnalysisError(message)
    return delay
