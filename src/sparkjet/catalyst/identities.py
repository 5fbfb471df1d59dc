"""Identities of columns: what ``df["name"]`` means in Spark's plan, kept where rows pass through another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sparkjet.catalyst.expressions import expression_of
from sparkjet.catalyst.logical_plans import analyzed, listed

if TYPE_CHECKING:
    from pyspark.sql import Column


class IdentifiedColumns:
    """Columns with the names and identities of those of ``rows``, one by one; on the driver.

    A user's ``df["name"]`` or ``df.name`` finds the column of that identity, and no other of the same name. Spark gives
    a Column a new identity when it is selected, so the projection is made as a logical plan.
    """

    def __init__(self, columns: Sequence[Column], rows: DataFrame) -> None:
        session: Any = rows.sparkSession
        self._jvm = session._jvm
        alias = self._jvm.org.apache.spark.sql.catalyst.expressions.Alias
        nothing, nowhere = self._jvm.scala.Option.empty(), self._jvm.PythonUtils.toSeq([])
        attributes = listed(analyzed(rows).output())
        self._listed = self._jvm.PythonUtils.toSeq(
            [
                # With the alias of a stream, as in F.col("a.name").
                alias(expression_of(column, session), each.name(), each.exprId(), each.qualifier(), nothing, nowhere)
                for column, each in zip(columns, attributes, strict=True)
            ]
        )

    def select(self, frame: DataFrame) -> DataFrame:
        """``frame.select`` of these columns."""
        session: Any = frame.sparkSession
        sql = self._jvm.org.apache.spark.sql
        plan = sql.catalyst.plans.logical.Project(self._listed, frame._jdf.logicalPlan())
        return DataFrame(sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
