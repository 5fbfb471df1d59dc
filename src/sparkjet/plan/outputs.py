"""Outputs: the rows of a stream or of a stage on their way to a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, IS_EARLY
from sparkjet.connectors.formats import SINKS
from sparkjet.sinks.column_names import check_names
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.outbox import Outbox

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.stage import Stage
    from sparkjet.plan.static_tables import StaticTable
    from sparkjet.plan.transformations import Transformations
    from sparkjet.sinks.protocol import Sink


class Rows(Enum):
    """Which rows an output gets."""

    INPUT = "input"
    """Those of the stream itself, without stages."""
    RESULTS = "results"
    """The results of a stage."""
    LATE = "late"
    """Those that a stage has dropped."""
    DEAD = "dead"
    """Those of which an expression behind ``divert`` has raised."""


@dataclass(frozen=True)
class Output(ABC):
    """Rows on their way to a sink.

    Attributes:
        name: What the record calls it; the same in every run.
        sink: Where they go.
        format: What the user calls the sink.
    """

    name: str
    sink: Sink
    format: str

    @property
    def reads_once(self) -> bool:
        """Whether the sink is known to read all rows of an epoch when it prepares them; nothing is of a user's own."""
        known = SINKS.get(self.format)
        return known is not None and known.reads_once

    @abstractmethod
    def sample(self) -> DataFrame:
        """A DataFrame with the schema of the rows as the sink gets them, for analysis only."""

    @property
    @abstractmethod
    def behind(self) -> int | None:
        """How far the rows may be behind the query's watermark and not be late; None where it says nothing of them."""

    def check(self) -> None:
        """Have the sink look at the rows and at where they go; nothing is changed."""
        sample = self.sample()
        known = SINKS.get(self.format)
        if isinstance(self.sink, FilesSink | Outbox) or (known is not None and known.names_columns):
            check_names(sample, self.format)
        self.sink.check(sample.schema)


@dataclass(frozen=True)
class StreamOutput(Output):
    """Rows of the stream itself, also those that are late or have no event time.

    Attributes:
        chain: From the plan's source to these rows.
    """

    chain: Transformations

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        # Behind divert(…) what may fail may be null; of a chain from what several share, divert may be before it.
        rows = self.chain.shape if self.chain.tried_from is None else self.chain.apply(self.chain.source)
        return rows.drop(*HIDDEN)

    @property
    def behind(self) -> int | None:
        """See :attr:`Output.behind`; of the query, for there is no stage."""
        return 0


@dataclass(frozen=True)
class StageOutput(Output):
    """Rows of a stage.

    Attributes:
        stage: The stage.
        rows: Which of its rows.
        shape: A DataFrame with the schema of these rows after ``finishing``, for analysis only.
        finishing: The user's transformations of them.
        early_period: How often early rows come, in microseconds; 0 in update mode without a period (every epoch),
            None where only final rows are wanted.
        marks_early: Whether rows have a column ``is_early``, and final rows come whether or not they have changed.
        tables: The static tables that the transformations ask for.
        complete: Whether all results come in each epoch that has rows for the stage, whether or not they have changed.
        chain: The transformations of ``finishing``; None of rows as they are.
    """

    stage: Stage
    rows: Rows
    shape: DataFrame
    finishing: Callable[[DataFrame], DataFrame]
    early_period: int | None = None
    marks_early: bool = False
    tables: Sequence[StaticTable] = ()
    complete: bool = False
    chain: Transformations | None = None

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        return self._marked(self.shape, early=False)

    @property
    def behind(self) -> int | None:
        """See :attr:`Output.behind`."""
        if self.rows is Rows.LATE or not self.stage.inputs:
            return None
        return self.stage.lag + self.stage.delay

    def finished(self, rows: DataFrame, *, early: bool = False) -> DataFrame:
        """The rows as the sink gets them."""
        return self._marked(self.finishing(rows), early=early)

    def tried(self, rows: DataFrame, *, early: bool = False) -> DataFrame:
        """The same where rows are diverted, with those that have failed, and the columns that say so."""
        assert self.chain is not None  # noqa: S101 - as rows are diverted
        return self._marked(self.chain.tried(rows.drop(*HIDDEN)), early=early)

    def _marked(self, rows: DataFrame, *, early: bool) -> DataFrame:
        return rows.withColumn(IS_EARLY, F.lit(early)) if self.marks_early else rows


@dataclass(frozen=True)
class DeadLetterOutput(Output):
    """Rows of which an expression behind ``divert`` has raised.

    Attributes:
        chain: That of the stream that was asked for them.
        shape: A DataFrame with the schema of these rows after ``finishing``, for analysis only.
        finishing: The user's transformations of them.
        tables: The static tables that the transformations ask for.
    """

    chain: Transformations
    shape: DataFrame
    finishing: Callable[[DataFrame], DataFrame]
    tables: Sequence[StaticTable] = ()

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        return self.shape

    @property
    def behind(self) -> None:
        """See :attr:`Output.behind`; a failed row may be as old as it likes."""
        return


AnyOutput: TypeAlias = StreamOutput | StageOutput | DeadLetterOutput
"""What a plan is made of."""
