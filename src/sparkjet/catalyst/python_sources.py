"""Relations of a Python data source in analyzed plans: found, and exchanged for others with the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.logical_plans import analyzed, kind_of, listed
from sparkjet.catalyst.physical_plans import as_frame
from sparkjet.errors import SourceError
from sparkjet.java import as_map, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RELATION = "DataSourceV2Relation"
_OUTPUT = "output"


def options_of(frame: DataFrame, name: str) -> list[dict[str, str]]:
    """The options of each batch read of a data source behind these rows."""
    return [_options(relation) for relation in _relations(analyzed(frame), name)]


def exchanged(frame: DataFrame, name: str, read: Callable[[Mapping[str, str]], DataFrame | None]) -> DataFrame:
    """The same rows, with each read of a data source exchanged for another."""
    session, plan = frame.sparkSession, analyzed(frame)
    pairs = []
    for relation in _relations(plan, name):
        options = _options(relation)
        found = read(options)
        if found is None:
            continue
        before = as_frame(session, relation).dtypes
        if found.dtypes != before:
            # Spark would match the values of the new columns to the old ones by position.
            message = (
                f"join: {options.get('path', name)} has the columns {_told(found.dtypes)} now, and had "
                f"{_told(before)} when it was loaded. Load it again, and start the query with that."
            )
            raise SourceError(message)
        [other] = _relations(analyzed(found), name)
        pairs.append((relation, _with_columns_of(session, relation, other)))
    return as_frame(session, plan.transformWithSubqueries(as_map(session, pairs))) if pairs else frame


def _relations(plan: Any, name: str) -> list[Any]:
    leaves = [leaf for each in (plan, *listed(plan.subqueriesAll())) for leaf in listed(each.collectLeaves())]
    return [leaf for leaf in leaves if kind_of(leaf) == _RELATION and leaf.table().name() == name]


def _told(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(" ".join(each) for each in columns)


def _options(relation: Any) -> dict[str, str]:
    # As the user wrote them: the map itself has the names in lower case.
    return dict(relation.options().asCaseSensitiveMap())


def _with_columns_of(session: SparkSession, relation: Any, other: Any) -> Any:
    """A relation with the column identities of another, so that what is computed from them finds them."""
    count = other.productArity()
    # Spark lines differ in what a relation has besides its columns.
    gateway: Any = session.sparkContext._gateway
    parts = gateway.new_array(java_class(session, "java.lang.Object"), count)
    for number in range(count):
        of = relation if relation.productElementName(number) == _OUTPUT else other
        parts[number] = of.productElement(number)
    return other.makeCopy(parts)
