"""Identities of columns: what ``df["name"]`` means in Spark's plan, preserved where rows take another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.catalyst.expressions import expression_of
from sparkjet.catalyst.logical_plans import analyzed, listed
from sparkjet.catalyst.physical_plans import as_frame
from sparkjet.java import as_seq, java_class

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class IdentifiedColumns:
    """Columns with the names, identities and metadata of the columns of ``rows``, one by one; on the driver.

    A user's ``df["name"]`` or ``df.name`` finds the column of that identity, and no other of the same name. Spark gives
    a selected Column a new identity, so the projection is built as a logical plan.
    """

    def __init__(self, columns: Sequence[Column], rows: DataFrame) -> None:
        session = rows.sparkSession
        alias = java_class(session, "org.apache.spark.sql.catalyst.expressions.Alias")
        some, nowhere = java_class(session, "scala.Some"), as_seq(session, [])
        attributes = listed(analyzed(rows).output())
        self._listed = as_seq(
            session,
            [
                # With the alias of a stream, as in F.col("a.name"), and Spark's window marker, without which
                # F.window_time would refuse the column.
                alias(
                    *(expression_of(column, session), each.name(), each.exprId(), each.qualifier()),
                    *(some(each.metadata()), nowhere),
                )
                for column, each in zip(columns, attributes, strict=True)
            ],
        )

    def select(self, frame: DataFrame) -> DataFrame:
        """``frame.select`` of these columns."""
        session = frame.sparkSession
        project = java_class(session, "org.apache.spark.sql.catalyst.plans.logical.Project")
        return as_frame(session, project(self._listed, frame._jdf.logicalPlan()))
