"""Outputs: the rows of a stream or of a stage on their way to a sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, IS_EARLY, IS_SHED
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
    """The rows of the stream itself, without stages."""
    RESULTS = "results"
    """The results of a stage."""
    LATE = "late"
    """The rows that a stage has dropped."""
    DEAD = "dead"
    """The rows for which an expression after ``divert`` has raised."""


@dataclass(frozen=True)
class Output(ABC):
    """Rows on their way to a sink.

    Attributes:
        name: Its name in the record; the same in every run.
        sink: The destination of the rows.
        format: The user's name for the sink.
    """

    name: str
    sink: Sink
    format: str

    @property
    def reads_once(self) -> bool:
        """Whether the sink is known to read all rows of an epoch when it prepares them; unknown for a user's sinks."""
        known = SINKS.get(self.format)
        return known is not None and known.reads_once

    @abstractmethod
    def sample(self) -> DataFrame:
        """A DataFrame with the schema of the rows as the sink gets them, for analysis only."""

    @property
    @abstractmethod
    def behind(self) -> int | None:
        """How far the rows may be behind the query's watermark without being late; None if it does not apply."""

    def check(self) -> None:
        """Let the sink check the rows and their destination; nothing is changed."""
        sample = self.sample()
        known = SINKS.get(self.format)
        if isinstance(self.sink, FilesSink | Outbox) or (known is not None and known.names_columns):
            check_names(sample, self.format)
        self.sink.check(sample.schema)


@dataclass(frozen=True)
class StreamOutput(Output):
    """Rows of the stream itself, including those that are late or have no event time.

    Attributes:
        chain: From the plan's source to these rows.
    """

    chain: Transformations

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        # After divert(…), a column that may fail may be null; divert may be before a chain that starts where outputs
        # branch.
        rows = self.chain.shape if self.chain.tried_from is None else self.chain.apply(self.chain.source)
        return rows.drop(*HIDDEN)

    @property
    def behind(self) -> int | None:
        """See :attr:`Output.behind`; the query's own, as there is no stage."""
        return 0


@dataclass(frozen=True)
class StageOutput(Output):
    """Rows of a stage.

    Attributes:
        stage: The stage.
        rows: Which of its rows.
        shape: A DataFrame with the schema of these rows after ``finishing``, for analysis only.
        finishing: The user's transformations of them.
        early_period: How often early rows come, in microseconds; 0 in update mode without a period (every epoch), None
            if only final rows are wanted.
        marks_early: Whether rows have a column ``is_early``, and final rows are sent whether or not they have changed.
        tables: The static tables that the transformations need.
        complete: Whether each epoch with rows for the stage sends all results, whether or not they have changed.
        chain: The transformations of ``finishing``; None for rows as they are.
        marks_shed: Whether rows have a column ``is_shed``.
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
    marks_shed: bool = False

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        return self._marked(self.shape, early=False)

    @property
    def behind(self) -> int | None:
        """See :attr:`Output.behind`."""
        if self.rows is Rows.LATE or not self.stage.inputs:
            return None
        return self.stage.lag + self.stage.delay

    def finished(self, rows: DataFrame, *, early: bool = False, shed: bool = False) -> DataFrame:
        """The rows as the sink gets them."""
        return self._marked(self.finishing(rows), early=early, shed=shed)

    def tried(self, rows: DataFrame, *, early: bool = False, shed: bool = False) -> DataFrame:
        """The same if rows are diverted, including failed rows, and with the columns that mark these."""
        assert self.chain is not None  # noqa: S101 - as rows are diverted
        return self._marked(self.chain.tried(rows.drop(*HIDDEN)), early=early, shed=shed)

    def _marked(self, rows: DataFrame, *, early: bool, shed: bool = False) -> DataFrame:
        rows = rows.withColumn(IS_EARLY, F.lit(early)) if self.marks_early else rows
        return rows.withColumn(IS_SHED, F.lit(shed)) if self.marks_shed else rows


@dataclass(frozen=True)
class DeadLetterOutput(Output):
    """Rows for which an expression after ``divert`` has raised.

    Attributes:
        chain: The chain of the stream whose dead letters were requested.
        shape: A DataFrame with the schema of these rows after ``finishing``, for analysis only.
        finishing: The user's transformations of them.
        tables: The static tables that the transformations need.
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
        """See :attr:`Output.behind`; a failed row may be of any age."""
        return


AnyOutput: TypeAlias = StreamOutput | StageOutput | DeadLetterOutput
"""The outputs from which a plan is made."""
