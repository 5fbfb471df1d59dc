"""A counter of rows inside a plan: whether a job has met any, without another job that asks."""

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
    """Counts rows of which something is true, in whatever job reads them.

    A row of a task that is tried again counts again: only that there are none is certain.

    Args:
        session: The session of the rows.
        condition: What is true of them.
    """

    def __init__(self, session: SparkSession, condition: Column) -> None:
        self._session = session
        self._condition = condition
        self._counter = scala_context(session).longAccumulator("sparkjet.failed")
        self._once = Once()

    @property
    def count(self) -> int:
        """How many rows have been met, by jobs that have ended."""
        return int(self._counter.value())

    def counted(self, rows: DataFrame) -> DataFrame:
        """The same rows, which are counted when they are read."""
        return rows.where(self._once("passing", build=self._passing))

    def _passing(self) -> Column:
        """True, of a row that is counted too."""
        session = self._session
        kind = java_class(session, f"{_SQL}.types.ObjectType")(self._counter.getClass())
        literal = java_class(session, f"{_SQL}.catalyst.expressions.Literal")
        counter = column_of(literal(self._counter, kind), session)
        counting = java_class(session, f"{_SQL}.catalyst.expressions.objects.InitializeJavaBean")
        add = as_map(session, [("add", expression_of(F.lit(1).cast("long"), session))])
        counted = counting(expression_of(F.when(self._condition, counter), session), add)
        # Not deterministic, so that it is not moved below what it asks about.
        return always() & F.when(self._condition, column_of(counted, session).isNotNull()).otherwise(True)
