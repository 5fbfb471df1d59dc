"""Stages: the stateful steps of a query, each with the rows that it reads and the operator that holds its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from sparkjet.catalyst.columns import ONLY_SUBSTREAM, SUBSTREAM, TIME
from sparkjet.errors import AnalysisError
from sparkjet.plan.dropped_rows import dropped_shape
from sparkjet.plan.inputs import fixed_substreams, several_substreams
from sparkjet.snapshots.record import Shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.catalyst.columns import CompiledColumns
    from sparkjet.catalyst.unsaid import Unsaid
    from sparkjet.plan.inputs import Input
    from sparkjet.plan.partial_rows import ProgressDetail
    from sparkjet.plan.transformations import Transformations
    from sparkjet.snapshots.record import Fields
    from sparkjet.state import Operator


class Intake(Protocol):
    """The expressions from judged rows to the table that a side takes in.

    Attributes:
        timed: Whether rows without an event time are dropped.
        substreams: The substreams whose highest event times :attr:`totals` has in parallel; empty if it has only one
        time.
    """

    timed: bool
    substreams: tuple[str, ...]

    @property
    def totals(self) -> tuple[CompiledColumns, CompiledColumns]:
        """Totals of :meth:`of`: labels to group by; rows, lowest and highest time, events and highest event times."""
        ...

    def of(self, judged: DataFrame, side: Any, detail: ProgressDetail) -> DataFrame:
        """The accepted rows in the form of the state, and rows that count the others."""
        ...


@dataclass(frozen=True, eq=False)
class Feed:
    """Rows that go into a stage.

    Attributes:
        transformations: From the rows that come in (an input's, or the results of ``parent``) to those that are read.
        inputs: The inputs from which the rows come, also through other stages.
        parent: The stage whose results are read, None if the rows come from a source.
        name: The user's name for the stream; None without ``alias``.
        time: The event time (microseconds) for windows if there is no watermark.
    """

    transformations: Transformations
    inputs: tuple[Input, ...] = ()
    parent: Stage | None = None
    name: str | None = None
    time: Column | None = None

    @property
    def lag(self) -> int:
        """How far the watermark of these rows is behind the query's."""
        return 0 if self.parent is None else self.parent.lag + self.parent.delay

    @property
    def is_streaming(self) -> bool:
        """Whether the rows come from a stream, not from a batch DataFrame."""
        return self.transformations.source.isStreaming if self.parent is None else self.parent.feeds[0].is_streaming

    @property
    def by_substream(self) -> bool:
        """Whether its rows can be of different substreams."""
        return bool(self.inputs) and several_substreams(self.inputs)

    @property
    def substreams(self) -> tuple[str, ...]:
        """All substreams of its rows, if there are several and no others can come; otherwise empty."""
        return fixed_substreams(self.inputs) if self.by_substream else ()

    @cached_property
    def shape(self) -> DataFrame:
        """The rows as the stage reads them, with the hidden columns; for analysis only."""
        return self.timed(self.transformations.shape)

    def timed(self, rows: DataFrame) -> DataFrame:
        """Rows after the transformations, with the hidden columns even if there is no watermark."""
        return rows.withColumns(self._added) if self._added else rows

    @cached_property
    def _added(self) -> dict[str, Column]:
        if self.time is None and TIME in self.transformations.shape.columns:
            return {}
        time = F.lit(None).cast("long") if self.time is None else self.time
        return {TIME: time, SUBSTREAM: F.lit(ONLY_SUBSTREAM)}

    def late_shape(self) -> DataFrame:
        """A DataFrame with the schema of the rows that are dropped here, for analysis only."""
        if self.parent is not None and not self.parent.may_be_late:
            message = (
                "late rows: the rows of a window are never late for the next one. Take them from the first window."
            )
            raise AnalysisError(message)
        if self.parent is None and SUBSTREAM not in self.transformations.shape.columns:
            message = (
                "late rows: without a watermark no row is late. Call withWatermark(…) first, or leave lateRows out."
            )
            raise AnalysisError(message)
        return dropped_shape(self.transformations.shape)


def fields_of(columns: Iterable[StructField]) -> Fields:
    """Columns in the form of a record: each record has them, so without anything that is obvious."""
    found = []
    for each in columns:
        # Without the user's metadata. What remains are collations, which are not in the type.
        said = StructField(each.name, each.dataType).jsonValue()
        found.append({name: said[name] for name in ("name", "type", "metadata") if said[name] != {}})
    return found


class Stage(ABC):
    """A stateful step of a query; pure description: the state is in the operator that it creates.

    Attributes:
        own_watermarks: Whether each side gets the watermark of its inputs, which may be ahead of the query's.
    """

    own_watermarks: ClassVar[bool] = False

    @property
    @abstractmethod
    def feeds(self) -> tuple[Feed, ...]:
        """The rows that it reads."""

    def late_shape(self) -> DataFrame:
        """A DataFrame with the schema of the rows that are dropped here, for analysis only."""
        return self.feeds[0].late_shape()

    @property
    @abstractmethod
    def intakes(self) -> tuple[Intake, ...]:
        """The conversion of each feed's rows on their way into the state."""

    @property
    def untried(self) -> str | None:
        """A description of its expressions that may raise and are not tried row by row; None if there are none."""
        return "a join of two streams or a function with state"

    @property
    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """The properties that must not change between two runs, because the saved state would no longer fit."""

    @property
    def unsaid(self) -> Unsaid:
        """The properties that the texts of the fingerprint leave out, and that must not change either."""
        return {}

    @property
    def shown(self) -> Shown:
        """The users' names for the content of the state; empty for a stage without state."""
        return Shown()

    @abstractmethod
    def operator(self, partitions: int) -> Operator | None:
        """A new operator without state; None for a stage that keeps none."""

    @abstractmethod
    def output(self, rows: DataFrame) -> DataFrame:
        """An operator's rows under the user's names, with the hidden columns of event time and substream."""

    @abstractmethod
    def shape(self) -> DataFrame:
        """A DataFrame with the schema of the results, for analysis only."""

    @property
    def uses_clock(self) -> bool:
        """Whether an epoch can be due here while nothing arrives; then the operator is a :class:`TimedOperator`."""
        return False

    @property
    def waits(self) -> bool:
        """Whether results may wait for the end of the input, as those of windows that are still open do."""
        return True

    @property
    def grid(self) -> tuple[int, int] | None:
        """Step and offset than which the watermark need not be finer; None if any step matters."""
        return None

    @property
    def may_be_late(self) -> bool:
        """Whether results may be older than the watermark, because late rows are not dropped here."""
        return False

    @property
    def delay(self) -> int:
        """How far the results may be behind the watermark that this stage has been given, in event time."""
        return 0

    @property
    def lag(self) -> int:
        """How far this stage's watermark is behind the query's."""
        return max(feed.lag for feed in self.feeds)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs from which its rows come, each once."""
        # By identity: a user's policy need not have a hash.
        return tuple({id(each): each for feed in self.feeds for each in feed.inputs}.values())

    @property
    def lineage(self) -> Iterator[Stage]:
        """The stages from the roots down to this one, each once and after those that it reads."""
        found: dict[Stage, None] = {}
        for feed in self.feeds:
            if feed.parent is not None:
                found |= dict.fromkeys(feed.parent.lineage)
        yield from found
        yield self
