"""Traversal of Spark's logical plans, on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def analyzed(df: DataFrame) -> Any:
    """The analyzed plan of a DataFrame."""
    return df._jdf.queryExecution().analyzed()


def streaming_nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan that the stream's rows pass through, from the top."""
    if plan.isStreaming():
        yield plan
        for child in children(plan):
            yield from streaming_nodes(child)


def passed_nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan that rows pass through, from the top: those of the stream, or all if there is none."""
    yield plan
    for child in passed_children(plan):
        yield from passed_nodes(child)


def passed_children(plan: Any) -> list[Any]:
    """The plans that a node's rows come from: of a stream the streaming ones."""
    return [child for child in children(plan) if child.isStreaming() or not plan.isStreaming()]


def children(plan: Any) -> list[Any]:
    """The plans that a node reads."""
    return listed(plan.children())


def listed(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def attribute_id(attribute: Any) -> int:
    """Identity of an attribute; two with the same name are different columns."""
    return int(attribute.exprId().id())


def attributes(df: DataFrame, name: str) -> list[Any]:
    """The columns that a name resolves to in Spark, usually one."""
    found = [number for number, column in enumerate(df.columns) if same_name(df, column, name)]
    if not found:
        return []
    output = analyzed(df).output()
    return [output.apply(number) for number in found]


def attribute_ids(df: DataFrame, name: str) -> list[int]:
    """Identities of the columns that a name resolves to in Spark, usually one."""
    return [attribute_id(attribute) for attribute in attributes(df, name)]


def selected(df: DataFrame, column: Column | str) -> Any:
    """The analyzed expression of a column."""
    return analyzed(df.select(column)).projectList().apply(0)


def aliases(nodes: Iterable[Any]) -> dict[int, Any]:
    """The expressions that the projections among some nodes compute, by the identity of the resulting column."""
    return {
        attribute_id(each): each.child()
        for node in nodes
        if node.nodeName() == "Project"
        for each in listed(node.projectList())
        if kind_of(each) == "Alias"
    }


def origins(expression: Any, renamed: Mapping[int, Any]) -> list[int]:
    """Identities of the columns that hold the same values as an expression, from it down to the first."""
    found: list[int] = []
    while True:
        kind = kind_of(expression)
        if kind == "AttributeReference":
            found.append(attribute_id(expression))
            if found[-1] not in renamed:
                return found
            expression = renamed[found[-1]]
        elif kind == "Alias" or (kind == "Cast" and expression.dataType().sameType(expression.child().dataType())):
            expression = expression.child()
        else:
            return found


def name_in_source(rows: DataFrame, column: str) -> str | None:
    """The name of a column in its source, whatever it is renamed and cast to; None for one that is computed."""
    nodes = [*passed_nodes(analyzed(rows))]
    renamed = aliases(nodes)
    expression = attributes(rows, column)[0]
    while (kind := kind_of(expression)) in {"Alias", "Cast", "AttributeReference"}:
        if kind != "AttributeReference":
            expression = expression.child()
        elif attribute_id(expression) in renamed:
            expression = renamed[attribute_id(expression)]
        else:
            given = [each for node in nodes if not children(node) for each in listed(node.output())]
            return str(expression.name()) if attribute_id(expression) in map(attribute_id, given) else None
    return None


def kind_of(node: Any) -> str:
    """Class name of an expression, without its package."""
    return str(node.getClass().getSimpleName())


def same_name(df: DataFrame, one: str, other: str) -> bool:
    """Whether two names denote the same column in Spark."""
    if one == other:
        return True
    return one.lower() == other.lower() and df.sparkSession.conf.get("spark.sql.caseSensitive") != "true"
