"""Traversal of Spark's logical plans, on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def analyzed(df: DataFrame) -> Any:
    """The analyzed plan of a DataFrame."""
    return df._jdf.queryExecution().analyzed()


def streaming_nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan that rows of the stream pass through, from the top."""
    if plan.isStreaming():
        yield plan
        for child in children(plan):
            yield from streaming_nodes(child)


def children(plan: Any) -> list[Any]:
    """The plans that a node reads."""
    return listed(plan.children())


def listed(sequence: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def attribute_id(attribute: Any) -> int:
    """Identity of an attribute; two of the same name are different columns."""
    return int(attribute.exprId().id())


def attribute_ids(df: DataFrame, name: str) -> list[int]:
    """Identities of the columns that a name resolves to in Spark, usually one."""
    found = [number for number, column in enumerate(df.columns) if same_name(df, column, name)]
    if not found:
        return []
    output = analyzed(df).output()
    return [attribute_id(output.apply(number)) for number in found]


def same_name(df: DataFrame, one: str, other: str) -> bool:
    """Whether two names are the same column in Spark."""
    if one == other:
        return True
    return one.lower() == other.lower() and df.sparkSession.conf.get("spark.sql.caseSensitive") != "true"
