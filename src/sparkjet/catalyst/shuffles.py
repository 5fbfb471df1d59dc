"""Shuffles that Spark's planner adds and a physical plan can do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkjet.java import as_map, as_seq, nothing, static_method

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGGREGATES = ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec")


def with_one_shuffle(session: SparkSession, plan: Any) -> Any:
    """A plan whose aggregation is shuffled once, by the columns that its groups are to be partitioned by afterwards.

    ``rows.groupBy("a", "b").agg(…).repartition("a")`` shuffles partial rows by both columns, and the groups by one. But
    the groups of a value of ``a`` can be combined wherever all partial rows of that value are. Any other plan is left
    as it is.
    """
    if _name(plan) != "ShuffleExchangeExec":
        return plan
    projections, node = [], plan.child()
    while _name(node) == "ProjectExec":
        projections.append(node)
        node = node.child()
    if not _is_final(node):
        return plan
    partitioning = plan.outputPartitioning()
    if _name(partitioning) != "SinglePartition$":
        for named in (*(each.projectList() for each in projections), node.resultExpressions()):
            partitioning = partitioning.transformUp(as_map(session, _aliases(named)))
        groups = {each.exprId() for each in _each(node.groupingExpressions())}
        if any(each.exprId() not in groups for each in _each(partitioning.references().toSeq())):
            return plan
        # Spark would shuffle once more: to Spark, a hash of the groups is not one of them.
        node = _with_first(node, static_method(session, "scala.Option.apply")(partitioning.expressions()))
    node = _over(session, node, _with_first(plan, partitioning, node.child()))
    for projection in reversed(projections):
        node = _over(session, projection, node)
    return node


def without_shuffle(session: SparkSession, plan: Any) -> Any:
    """A plan whose last aggregation aggregates each partition by itself; any other plan is left as it is.

    A group then has up to one row per partition: for the driver, which combines them faster than a stage of tasks.
    """
    return _with_first(plan, nothing(session)) if _is_final(plan) else plan


def _is_final(node: Any) -> bool:
    """Whether a node combines partial rows of other tasks."""
    if _name(node) not in _AGGREGATES or _name(node.child()) not in _AGGREGATES:
        return False
    return bool(node.requiredChildDistributionExpressions().isDefined())


def _with_first(node: Any, *values: Any) -> Any:
    """A copy of a node with other values for its first parameters."""
    others = (node.productElement(number) for number in range(len(values), node.productArity()))
    return node.copy(*values, *others)


def _over(session: SparkSession, node: Any, child: Any) -> Any:
    return node.withNewChildren(as_seq(session, [child]))


def _aliases(named: Any) -> list[tuple[Any, Any]]:
    """The expressions behind the columns of a projection, except a column of the same identity."""
    return [(each.toAttribute(), each.child()) for each in _each(named) if _name(each) == "Alias"]


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _name(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name
