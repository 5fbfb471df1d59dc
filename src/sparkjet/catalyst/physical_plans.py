"""Physical plans of Spark's as DataFrames, and the empty tables that stand for them in logical plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sparkjet.java import as_seq, java_class, nothing, static_method

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED = "LogicalQueryStage"
"""The class of the logical plan of what :func:`planned` makes."""


def planned(session: SparkSession, plan: Any, output: Any) -> DataFrame:
    """The rows of a physical plan that Spark has not prepared for execution.

    Args:
        session: The session that the plan was made in.
        plan: The plan.
        output: The columns of its result, by the identities that it gives them.
    """
    # A leaf of its own: Spark takes plans over the same one for the same plan, and would use what is cached of one.
    leaf = no_rows(session, output)
    logical = java_class(session, f"org.apache.spark.sql.execution.adaptive.{PLANNED}")(leaf, plan)
    # Spark would apply all its rules to find that nothing is left to be resolved.
    logical.setAnalyzed()
    return as_frame(session, logical)


def no_rows(session: SparkSession, output: Any, partitioning: Any = None) -> Any:
    """An empty RDD with these columns as a logical plan."""
    none = nothing(session)
    if partitioning is None:
        unknown = java_class(session, "org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning")
        partitioning = unknown(0)
    ordering = as_seq(session, [])
    tags = static_method(session, "scala.reflect.ClassTag.apply")
    row = java_class(session, "java.lang.Class").forName("org.apache.spark.sql.catalyst.InternalRow")
    rdd = session.sparkContext._jsc.sc().emptyRDD(tags(row))
    # Without the statistics and constraints of an epoch's rows: Spark would plan by them.
    rows = java_class(session, "org.apache.spark.sql.execution.LogicalRDD")
    return rows(output, rdd, partitioning, ordering, False, none, session._jsparkSession, none, none, False)


def as_frame(session: SparkSession, logical: Any) -> DataFrame:
    """The DataFrame of a logical plan."""
    rows = static_method(session, "org.apache.spark.sql.classic.Dataset.ofRows")
    return DataFrame(rows(session._jsparkSession, logical), session)
