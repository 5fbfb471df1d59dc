"""Placeholders: Columns that stand, in a composition of Columns, for an aggregate that Spark does not have."""

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

_PREFIX = "_sparkjet_placeholder_"
_CALL = re.compile(rf"max_by\((?:NULL|CAST\(NULL AS .*?\)), {_PREFIX}(\d+)\)")
# For good: a composition holds the name of a placeholder, not the object it stands for.
_objects: list[object] = []


def placeholder_of(obj: object) -> Column:
    """A Column that stands for an object; a different one on each call."""
    _objects.append(obj)
    return F.col(f"{_PREFIX}{len(_objects) - 1}")


def has_placeholder(column: Column) -> bool:
    """Whether a Column contains a placeholder."""
    return _PREFIX in str(column._jc)


def typed(column: Column, session: SparkSession, type_of: Callable[[Any], DataType]) -> Column:
    """A Column that Spark can analyze: each placeholder becomes an aggregate of the type of what it stands for."""

    def call(part: Any) -> Any:
        name = str(part.name()) if kind_of(part) == "UnresolvedAttribute" else ""
        if not name.startswith(_PREFIX):
            return None
        null = F.lit(None).cast(type_of(_objects[int(name.removeprefix(_PREFIX))]))
        # Any aggregate of a value that also takes a name.
        return expression_of(F.max_by(null, F.lit(name)), session)

    expression = expression_of(column, session)
    found = rebuilt(expression, session, call)
    return column if found is expression else column_of(found, session)


def stood_for(function: Any) -> object | None:
    """The object that an analyzed aggregate function stands for, None if the function is one of Spark's own."""
    if kind_of(function) != "MaxBy" or kind_of(function.orderingExpr()) != "Literal":
        return None
    name = str(function.orderingExpr().value())
    return _objects[int(name.removeprefix(_PREFIX))] if name.startswith(_PREFIX) else None


def without_placeholders(text: str) -> str:
    """SQL in which placeholders are replaced by the names of what they stand for."""
    return _CALL.sub(lambda found: str(_objects[int(found[1])]), text)
