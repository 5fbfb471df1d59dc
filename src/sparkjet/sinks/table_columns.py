"""Columns of rows and of a table in a format other than Spark's: by name, in any order and case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.errors import AnalysisError, SinkError


def matched(table: StructType, rows: StructType, where: str) -> dict[str, str]:
    """The table's name for each column, by the name in the rows, in the order of the rows."""
    # Names that differ only in case are one column to Spark's readers.
    columns = {field.name.lower(): field for field in table.fields}
    names: dict[str, str] = {}
    for field in rows.fields:
        column = columns.pop(field.name.lower(), None)
        if column is None:
            message = (
                f"{where} has no column {field.name!r}. Columns: {', '.join(table.fieldNames())}. Drop it from "
                'the result, or add it: option("mergeSchema", True), or ALTER TABLE … ADD COLUMN.'
            )
            raise AnalysisError(message)
        _check_column(field, column, where)
        names[field.name] = column.name
    return names


@contextmanager
def looking_again(where: str) -> Iterator[None]:
    """Look at a table before an epoch is prepared: others may have changed it since the start.

    Once an epoch is decided, no start can write it differently.
    """
    try:
        yield
    except AnalysisError as error:
        raise SinkError(f"{where} was changed while the query was running. {error.args[0]}") from error


def _check_column(field: StructField, column: StructField, where: str) -> None:
    if _plain(field.dataType) != _plain(column.dataType):
        message = (
            f"column {field.name!r} is {field.dataType.simpleString()}, and in {where} it is "
            f'{column.dataType.simpleString()}. Cast it: withColumn("{field.name}", '
            f'F.col("{field.name}").cast("{column.dataType.simpleString()}")).'
        )
        raise AnalysisError(message)
    if not _fits(field.dataType, column.dataType):
        message = (
            f"column {field.name!r} may have nulls in its fields or elements, where {where} has NOT NULL. Write to a "
            "table whose nested fields are nullable."
        )
        raise AnalysisError(message)


def _plain(kind: DataType) -> Any:
    """A type without what does not count: nullability, and metadata of fields."""
    if isinstance(kind, StructType):
        # As written: only Spark finds fields by names in another case.
        return [(field.name, _plain(field.dataType)) for field in kind.fields]
    if isinstance(kind, ArrayType):
        return ["array", _plain(kind.elementType)]
    if isinstance(kind, MapType):
        return ["map", _plain(kind.keyType), _plain(kind.valueType)]
    return kind


def _fits(given: DataType, wanted: DataType) -> bool:
    """Whether nested values that must not be null are indeed never null."""
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        pairs = zip(given.fields, wanted.fields, strict=True)
        return all((two.nullable or not one.nullable) and _fits(one.dataType, two.dataType) for one, two in pairs)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return (wanted.containsNull or not given.containsNull) and _fits(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return (wanted.valueContainsNull or not given.valueContainsNull) and _fits(given.valueType, wanted.valueType)
    return True
