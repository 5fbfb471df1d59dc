"""Spark's physical plans as DataFrames, and the empty tables that stand for them in logical plans."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from sparkjet.catalyst.logical_plans import analyzed
from sparkjet.java import as_map, as_seq, java_class, nothing, scala_context, static_method
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from pyspark import SparkContext

PLANNED = "LogicalQueryStage"
"""Class of the logical plan that :func:`planned` makes."""


def planned(session: SparkSession, plan: Any, output: Any) -> DataFrame:
    """The rows of a physical plan that Spark has not prepared for execution."""
    # A separate leaf: Spark takes plans over the same one for the same plan, and would use what is cached for one.
    leaf = no_rows(session, output)
    logical = java_class(session, f"org.apache.spark.sql.execution.adaptive.{PLANNED}")(leaf, plan)
    # Spark would apply all its rules only to find that nothing is left to resolve.
    logical.setAnalyzed()
    return as_frame(session, logical)


def no_rows(session: SparkSession, output: Any, partitioning: Any = None) -> Any:
    """An empty RDD with these columns, as a logical plan."""
    tag, _, _ = _parts(session.sparkContext)
    return of_rdd(session, output, scala_context(session).emptyRDD(tag), partitioning)


def local_rows(session: SparkSession, output: Any, values: Any, tasks: int) -> Any:
    """Rows on the driver, a Scala ``Seq`` that is not copied, as a logical plan.

    Not Spark's ``LocalRelation``: each analyzer rule would go through all of its rows.
    """
    tag, _, _ = _parts(session.sparkContext)
    return of_rdd(session, output, scala_context(session).parallelize(values, tasks, tag))


def of_rdd(session: SparkSession, output: Any, rdd: Any, partitioning: Any = None) -> Any:
    """The rows of an RDD as a logical plan."""
    _, unknown, rows = _parts(session.sparkContext)
    none, ordering = nothing(session), as_seq(session, [])
    # Without the statistics and constraints of one epoch's rows, which Spark would plan by.
    further = () if LINE < (4, 3) else (False,)
    return rows(
        output, rdd, partitioning or unknown, ordering, False, none, session._jsparkSession, none, none, *further
    )


@lru_cache(4)
def _parts(context: SparkContext) -> tuple[Any, Any, Any]:
    """The class tag of rows, no partitioning, and the class of logical plans of RDDs; the same for all tables."""
    jvm: Any = context._gateway.jvm  # type: ignore[union-attr]
    row = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    unknown = jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(0)
    return jvm.scala.reflect.ClassTag.apply(row), unknown, jvm.org.apache.spark.sql.execution.LogicalRDD


def own_session(session: SparkSession) -> SparkSession:
    """A session with the settings of another one, which stay as they are when they are changed here."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


def as_frame(session: SparkSession, logical: Any) -> DataFrame:
    """The DataFrame of a logical plan."""
    rows = static_method(session, "org.apache.spark.sql.classic.Dataset.ofRows")
    return DataFrame(rows(session._jsparkSession, logical), session)


def exchanged_nodes(frame: DataFrame, pairs: Iterable[tuple[Any, DataFrame]]) -> DataFrame:
    """The same rows, with other rows in the place of nodes of its plan, which must have the same columns."""
    session = frame.sparkSession
    replaced = [(node, analyzed(rows)) for node, rows in pairs]
    return as_frame(session, analyzed(frame).transformUp(as_map(session, replaced)))
