"""Values that may have no Python equivalent: found by Spark, before they are decided."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_LIMITS: dict[type[T.DataType], tuple[str, str]] = {
    # Two days within the first and the last year: which moments Python can represent depends on its process' time zone.
    T.TimestampType: ("TIMESTAMP_LTZ '0001-01-03 00:00:00'", "TIMESTAMP_LTZ '9999-12-29 00:00:00'"),
    T.TimestampNTZType: ("TIMESTAMP_NTZ '0001-01-03 00:00:00'", "TIMESTAMP_NTZ '9999-12-29 00:00:00'"),
    T.DateType: ("DATE '0001-01-01'", "DATE '9999-12-31'"),
}


def doubtful(schema: T.StructType) -> Column | None:
    """Whether a row has a value that Python may not be able to represent, such as a time after the year 9999.

    None if no row can have one.
    """
    return _any([_doubtful(field.dataType, F.col(quoted(field.name))) for field in schema.fields])


def _doubtful(kind: T.DataType, value: Column) -> Column | None:
    if type(kind) in _LIMITS:
        first, last = _LIMITS[type(kind)]
        return (value < F.expr(first)) | (value > F.expr(last))
    if isinstance(kind, T.YearMonthIntervalType):
        # Null, too: PySpark refuses types that it does not convert, whatever the value.
        return F.lit(True)
    if isinstance(kind, T.StructType):
        return _any([_doubtful(field.dataType, value.getField(field.name)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return _in_elements(kind.elementType, value)
    if isinstance(kind, T.MapType):
        return _any([_in_elements(kind.keyType, F.map_keys(value)), _in_elements(kind.valueType, F.map_values(value))])
    return None


def _in_elements(kind: T.DataType, elements: Column) -> Column | None:
    if _doubtful(kind, F.lit(None)) is None:
        return None

    def of_element(element: Column) -> Column:
        found = _doubtful(kind, element)
        assert found is not None  # noqa: S101 - as above
        return F.coalesce(found, F.lit(False))

    return F.exists(elements, of_element)


def _any(found: list[Column | None]) -> Column | None:
    conditions = [F.coalesce(each, F.lit(False)) for each in found if each is not None]
    return reduce(or_, conditions) if conditions else None
