"""Micro-batches: their rows with the plan behind them, so that Spark plans what reads them together with it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.doors import MICRO_BATCH, is_open
from sparkjet.catalyst.physical_plans import planned
from sparkjet.java import as_seq, java_class, nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OPERATORS = ("ProjectExec", "FilterExec", "GenerateExec")
"""Operators that compute each row from a single one, and that do not appear in Spark's progress."""
_COMPILED, _ADAPTER = "WholeStageCodegenExec", "InputAdapter"
_CHANGING = ("CURRENT_LIKE", "PLAN_EXPRESSION")
"""Expressions that become literals of the batch: Spark would compile all that is planned with them in every epoch."""


def with_plan(batch: DataFrame, query: StreamingQuery) -> DataFrame:
    """The rows of a micro-batch, whose last operators are planned together with what reads them; on the driver.

    The plan of what ``foreachBatch`` gives ends at an RDD: each row of the source is written out in memory there, and
    read again after it. In one of Spark's own queries, both sides are a single loop of generated code. Whatever is
    below the last projections, filters and generators, such as the source, stays an RDD, since Spark counts its rows
    there.
    """
    if not is_open(batch.sparkSession, MICRO_BATCH):
        return batch
    jquery: Any = query._jsq  # noqa: SLF001
    # Not in Spark's API: the plan of the batch that runs.
    found = planned_rows(batch.sparkSession, jquery.streamingQuery().lastExecution())
    return batch if found is None else found


def planned_rows(session: SparkSession, execution: Any) -> DataFrame | None:
    """The rows of a plan in execution, its last operators planned with what reads them; None if it has no such ones."""
    analyzed = execution.analyzed()
    if any(analyzed.containsPattern(pattern) for pattern in _patterns(session.sparkContext._gateway)):
        return None
    node, operators, is_compiled = execution.executedPlan(), [], False
    while (name := node.getClass().getSimpleName()) in {*_OPERATORS, _COMPILED, _ADAPTER}:
        if name in _OPERATORS:
            operators.append(node)
        else:
            is_compiled = name == _COMPILED
        node = node.child()
    if not operators:
        return None
    if is_compiled:
        # Alone, it would be interpreted.
        node = java_class(session, f"org.apache.spark.sql.execution.{_COMPILED}")(node, 1)
    scan, ordering = java_class(session, "org.apache.spark.sql.execution.RDDScanExec"), as_seq(session, [])
    plan = scan(node.output(), node.execute(), "MicroBatch", node.outputPartitioning(), ordering, nothing(session))
    for operator in reversed(operators):
        plan = operator.withNewChildren(as_seq(session, [plan]))
    return planned(session, plan, plan.output())


@lru_cache(4)
def _patterns(gateway: Any) -> list[Any]:
    patterns = gateway.jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return [getattr(patterns, name)() for name in _CHANGING]
