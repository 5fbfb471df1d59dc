"""Allowed steps between a source and its stream: only what Spark computes row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst import alternatives
from sparkjet.catalyst.logical_plans import (
    aliases,
    analyzed,
    attribute_id,
    children,
    kind_of,
    listed,
    passed_nodes,
    streaming_nodes,
)
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_BY_ROW = frozenset(
    {
        *("Project", "Filter", "Generate", "Expand", "Sample", "ScriptTransformation", "CollectMetrics"),
        *("MapInPandas", "MapInArrow", "PythonMapInArrow"),
        *("DeserializeToObject", "MapElements", "MapPartitions", "SerializeFromObject", "TypedFilter"),
        *("SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "PipeOperator", "ResolvedHint"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        *("Union", "Join", "LateralJoin"),
    }
)
"""Nodes that give the same rows however the stream is cut into batches, and keep no state in Spark's checkpoint.

An allow list: a node of a later Spark is refused until it has been examined. Otherwise its state might be missing after
a restart, or its result silently wrong.
"""

REFUSED = {
    "EventTimeWatermark": (
        "Spark's withWatermark: it drops rows by the highest time of all partitions",
        alternatives.WATERMARK,
    ),
    "Aggregate": ("an aggregation", alternatives.AGGREGATION),
    "Deduplicate": ("dropDuplicates or distinct", alternatives.DUPLICATES),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", alternatives.DUPLICATES),
    "Distinct": ("SELECT DISTINCT or a UNION that drops duplicates", alternatives.DUPLICATES),
    "GlobalLimit": ("a limit", alternatives.FIRST_ROWS),
    "LocalLimit": ("a limit", alternatives.FIRST_ROWS),
    "Tail": ("a tail", alternatives.FIRST_ROWS),
    "Offset": ("an offset", alternatives.FIRST_ROWS),
    "Sort": ("a sort", alternatives.ORDER),
    "Window": ("a window function (over)", alternatives.RANKS),
    "AttachDistributedSequence": ("zipWithIndex", alternatives.RANKS),
    "Intersect": ("an intersection", alternatives.SET),
    "Intersect All": ("an intersection", alternatives.SET),
    "Except": ("a subtraction (EXCEPT)", alternatives.SET),
    "Except All": ("a subtraction (EXCEPT)", alternatives.SET),
    "FlatMapGroupsInPandas": ("applyInPandas", alternatives.GROUPS),
    "FlatMapGroupsInArrow": ("applyInArrow", alternatives.GROUPS),
    "FlatMapCoGroupsInPandas": ("a cogroup", alternatives.STREAM_JOIN),
    "FlatMapCoGroupsInArrow": ("a cogroup", alternatives.STREAM_JOIN),
    **dict.fromkeys(
        (
            *("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"),
            *("TransformWithState", "TransformWithStateInPandas", "TransformWithStateInPySpark"),
        ),
        ("a stateful function", alternatives.STATE),
    ),
}
"""Nodes whose names users may not know, and what to do instead; other nodes are refused by name."""


def check_row_by_row(df: DataFrame) -> None:
    """Refuse a streaming DataFrame that keeps state or treats each batch separately."""
    for node in streaming_nodes(analyzed(df)):
        name = node.nodeName()
        if name == "Join" and all(child.isStreaming() for child in children(node)):
            raise AnalysisError(f"stream: the DataFrame contains a stream-stream join. {alternatives.STREAM_JOIN}")
        if name not in ROW_BY_ROW and children(node):
            raise AnalysisError(f"stream: the DataFrame contains {_described(name)}")


def added(before: DataFrame, after: DataFrame) -> list[Any]:
    """The expressions of a transformation: a ``select`` whose columns name each other is several projections."""
    nodes = list(passed_nodes(analyzed(after)))
    count = len(nodes) - sum(1 for _ in passed_nodes(analyzed(before)))
    return [each for node in nodes[: max(count, 1)] for each in listed(node.expressions())]


_NOT_ONE = frozenset({"Generate", "Expand", "Filter"})
"""Nodes that turn a row into several or none; a window as a column brings along the last two."""


def check_step(
    before: DataFrame,
    after: DataFrame,
    together: Together | None,
    table: DataFrame | None = None,
    *,
    filters: bool = False,
) -> bool:
    """Refuse a transformation whose result would depend on how the stream is cut into epochs."""
    nodes = list(passed_nodes(analyzed(after)))
    added = Counter(node.nodeName() for node in nodes)
    added.subtract(node.nodeName() for node in passed_nodes(analyzed(before)))
    if table is not None and not after.isStreaming:
        # In a stream, its nodes are already told apart from the stream's.
        added.subtract(node.nodeName() for node in passed_nodes(analyzed(table)))
    for name in (name for name, count in added.items() if count > 0):
        if name == "Window" and together is not None:
            together.check(nodes)
        elif name not in ROW_BY_ROW:
            raise AnalysisError(f"the expression needs {_described(name)}")
    return any(added[name] > 0 for name in _NOT_ONE if name != "Filter" or not filters)


@dataclass(frozen=True)
class Together:
    """A window column of results: all results of equal windows come in one epoch.

    Attributes:
        name: Name of the column.
        ids: Its identity in Spark's plan: another column may take its name.
        fields: Those of its fields for which that is also true.
    """

    name: str
    ids: Sequence[int]
    fields: Sequence[str]

    def check(self, nodes: Sequence[Any]) -> None:
        """Refuse window functions that would compare results that merely happen to be in one epoch."""
        renamed = aliases(nodes)
        partitions = [
            [self._is_one(expression, renamed) for expression in listed(node.partitionSpec())]
            for node in nodes
            if node.nodeName() == "Window"
        ]
        if not all(any(found) for found in partitions):
            message = (
                f"a window function over results must be partitioned by {self.name!r}: without it the function would "
                f"compare any results that happen to be in one epoch. Add {self.name!r} to partitionBy(…)."
            )
            raise AnalysisError(message)

    def part(self, expression: Any, rows: DataFrame) -> str | None:
        """The part of the window that an analyzed expression over some rows holds: ``window``, a field, or None."""
        return self._part(expression, aliases(passed_nodes(analyzed(rows))))

    def _is_one(self, expression: Any, renamed: Mapping[int, Any]) -> bool:
        """Whether an expression is the column or one of the accepted fields."""
        found = self._part(expression, renamed)
        return found == "window" or found in self.fields

    def _part(self, expression: Any, renamed: Mapping[int, Any]) -> str | None:
        """The column or field that an expression stands for, under any name."""
        field = None
        while True:
            kind = kind_of(expression)
            if kind == "AttributeReference":
                identity = attribute_id(expression)
                if identity in self.ids:
                    return field or "window"
                if identity not in renamed:
                    return None
                expression = renamed[identity]
            elif kind == "Alias":
                expression = expression.child()
            elif kind == "GetStructField" and field is None:
                field, expression = str(expression.extractFieldName()), expression.child()
            else:
                return None


def _described(name: str) -> str:
    if name in REFUSED:
        what, way_out = REFUSED[name]
        return f"{what}, which does not work row by row. {way_out}"
    return (
        f"{name}, which is not known to work row by row: it could keep state outside the snapshot, or treat each batch "
        f"separately. {alternatives.OWN_QUERY}"
    )
