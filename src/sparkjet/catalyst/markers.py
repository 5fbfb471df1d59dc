"""Markers: Columns that stand, in a composition of Columns, for an aggregate that Spark does not have."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import column_of, expression_of, rebuilt
from sparkjet.catalyst.logical_plans import kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_PREFIX = "_sparkjet_marker_"
_CALL = re.compile(rf"max_by\((?:NULL|CAST\(NULL AS .*?\)), {_PREFIX}(\d+)\)")
# For good: a composition holds the name of a marker, not the object it stands for.
_marked: list[object] = []


def marker_of(obj: object) -> Column:
    """A Column that stands for an object; a different one on each call."""
    _marked.append(obj)
    return F.col(f"{_PREFIX}{len(_marked) - 1}")


def is_marked(column: Column) -> bool:
    """Whether a Column contains a marker."""
    return _PREFIX in str(column._jc)


def typed(column: Column, session: SparkSession, type_of: Callable[[Any], DataType]) -> Column:
    """A Column that Spark can analyze: each marker becomes an aggregate of the type of what it stands for."""

    def call(part: Any) -> Any:
        name = str(part.name()) if kind_of(part) == "UnresolvedAttribute" else ""
        if not name.startswith(_PREFIX):
            return None
        null = F.lit(None).cast(type_of(_marked[int(name.removeprefix(_PREFIX))]))
        # Any aggregate of a value that also takes a name.
        return expression_of(F.max_by(null, F.lit(name)), session)

    expression = expression_of(column, session)
    found = rebuilt(expression, session, call)
    return column if found is expression else column_of(found, session)


def marked_by(function: Any) -> object | None:
    """The object that an analyzed aggregate function stands for, None if the function is one of Spark's own."""
    if kind_of(function) != "MaxBy" or kind_of(function.orderingExpr()) != "Literal":
        return None
    name = str(function.orderingExpr().value())
    return _marked[int(name.removeprefix(_PREFIX))] if name.startswith(_PREFIX) else None


def unmarked(text: str) -> str:
    """SQL in which markers are replaced by the names of what they stand for."""
    return _CALL.sub(lambda found: str(_marked[int(found[1])]), text)
