"""Outputs: the rows of a stream or of its windows on their way to a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, IS_EARLY
from sparkjet.plan.windowed_aggregation import WindowedAggregation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.transformations import Transformations
    from sparkjet.sinks.protocol import Sink


class Rows(Enum):
    """Which rows an output gets."""

    INPUT = "input"
    """Those of the stream itself, without windows."""
    RESULTS = "results"
    """The results of an aggregation."""
    LATE = "late"
    """Those that an aggregation has dropped."""


@dataclass(frozen=True)
class Output:
    """Rows on their way to a sink.

    Attributes:
        name: What the record calls it; the same in every run.
        sink: Where they go.
        format: What the user calls the sink.
    """

    name: str
    sink: Sink
    format: str

    def sample(self) -> DataFrame:
        """A DataFrame with the schema of the rows as the sink gets them, for analysis only."""
        raise NotImplementedError

    def check(self) -> None:
        """Have the sink look at the rows and at where they go; nothing is changed.

        Raises:
            AnalysisError: The rows cannot be written there, or it cannot be reached.
        """
        self.sink.check(self.sample().schema)


@dataclass(frozen=True)
class StreamOutput(Output):
    """Rows of the stream itself, also those that are late or have no event time.

    Attributes:
        chain: From the plan's source to these rows.
    """

    chain: Transformations

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        return self.chain.shape.drop(*HIDDEN)


@dataclass(frozen=True)
class AggregationOutput(Output):
    """Rows of an aggregation.

    Attributes:
        aggregation: The aggregation.
        rows: Which of its rows.
        shape: A DataFrame with the schema of these rows, for analysis only.
        finishing: The user's transformations of them.
        early_period: How often early rows come, in microseconds; 0 in update mode without a period (every epoch),
            None where only final rows are wanted.
        marks_early: Whether rows have a column ``is_early``, and final rows come whether or not they have changed.
    """

    aggregation: WindowedAggregation
    rows: Rows
    shape: DataFrame
    finishing: Callable[[DataFrame], DataFrame]
    early_period: int | None = None
    marks_early: bool = False

    def sample(self) -> DataFrame:
        """See :meth:`Output.sample`."""
        return self.finished(self.shape)

    def finished(self, rows: DataFrame, *, early: bool = False) -> DataFrame:
        """The rows as the sink gets them."""
        finished = self.finishing(rows)
        return finished.withColumn(IS_EARLY, F.lit(early)) if self.marks_early else finished


AnyOutput: TypeAlias = StreamOutput | AggregationOutput
"""What a plan is made of."""
