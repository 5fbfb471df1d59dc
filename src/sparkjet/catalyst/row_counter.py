"""A counter of rows inside a plan, which tells whether a job has met any without another job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import Once
from sparkjet.catalyst.expressions import column_of, expression_of
from sparkjet.catalyst.tries import always
from sparkjet.java import as_map, java_class, scala_context

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SQL = "org.apache.spark.sql"


class RowCounter:
    """Counts the rows that meet a condition, in whatever job reads them.

    Rows of a retried task count again: only a count of zero is certain.

    Args:
        session: The session of the rows.
        condition: The condition.
    """

    def __init__(self, session: SparkSession, condition: Column) -> None:
        self._session = session
        self._condition = condition
        self._counter = scala_context(session).longAccumulator("sparkjet.failed")
        self._once = Once()

    @property
    def count(self) -> int:
        """The number of rows met by jobs that have ended."""
        return int(self._counter.value())

    def counted(self, rows: DataFrame) -> DataFrame:
        """The same rows, counted when they are read."""
        return rows.where(self._once("all", build=lambda: self._counting(counted=True, others=F.lit(True))))

    def passed(self, rows: DataFrame, kept: str) -> DataFrame:
        """The rows that are kept, none of which is counted.

        In one condition: if Spark knew that no row is kept, it would not read the rows to be counted below.
        """
        return rows.where(self._once("kept", kept, build=lambda: self._counting(counted=False, others=F.col(kept))))

    def _counting(self, *, counted: bool, others: Column) -> Column:
        """A condition that counts the rows that it meets."""
        session = self._session
        kind = java_class(session, f"{_SQL}.types.ObjectType")(self._counter.getClass())
        literal = java_class(session, f"{_SQL}.catalyst.expressions.Literal")
        counter = column_of(literal(self._counter, kind), session)
        counting = java_class(session, f"{_SQL}.catalyst.expressions.objects.InitializeJavaBean")
        add = as_map(session, [("add", expression_of(F.lit(1).cast("long"), session))])
        # Null where nothing is counted, so that Spark does not know the value.
        met = column_of(counting(expression_of(F.when(self._condition, counter), session), add), session)
        # Nondeterministic, so that it is not moved below what it asks about.
        return always() & F.when(self._condition, met.isNotNull() if counted else met.isNull()).otherwise(others)
