"""Column names that sinks refuse if they store rows by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_names(rows: DataFrame, sink: str) -> None:
    """Refuse rows in which two columns, or two fields of a struct, have one name: files and maps look them up by it.

    Spark's writers refuse them too, but only when there are rows to write, which is in the first epoch.
    """
    sensitive = rows.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    for place, one, other in _alike(rows.schema, "", sensitive=sensitive):
        what = f"two fields of {place!r}" if place else "two columns of the result"
        if one == other:
            message = f"{what} are named {one!r}"
        else:
            message = f"the names of {what}, {one!r} and {other!r}, differ only by case (spark.sql.caseSensitive=false)"
        raise AnalysisError(
            f'start: the sink "{sink}" stores rows by the names of their columns, and {message}. Drop one of them, or '
            'give it another name in select(…), e.g. F.col("b.id").alias("b_id") after a join.'
        )


def _alike(kind: DataType, place: str, *, sensitive: bool) -> Iterator[tuple[str, str, str]]:
    """Where two names are the same, with both names; the outermost first."""
    if isinstance(kind, StructType):
        seen: dict[str, str] = {}
        for name in kind.names:
            key = name if sensitive else name.lower()
            if key in seen:
                yield place, seen[key], name
            seen[key] = name
        for field in kind.fields:
            inside = f"{place}.{field.name}" if place else field.name
            yield from _alike(field.dataType, inside, sensitive=sensitive)
    elif isinstance(kind, ArrayType):
        yield from _alike(kind.elementType, place, sensitive=sensitive)
    elif isinstance(kind, MapType):
        for each in (kind.keyType, kind.valueType):
            yield from _alike(each, place, sensitive=sensitive)
