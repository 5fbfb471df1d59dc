"""The formats of files: which ones there are, and which rows each can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

FORMATS = ("csv", "json", "orc", "parquet", "text")


def check_partition_by(schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse columns that rows do not have, and files without any."""
    missing = [name for name in partition_by if name not in schema.fieldNames()]
    if missing:
        message = f"partitionBy: no column {missing[0]!r} in the result. Columns: {', '.join(schema.fieldNames())}"
        raise AnalysisError(message)
    if set(schema.fieldNames()) <= set(partition_by):
        raise AnalysisError("partitionBy: at least one column must stay in the files. Leave one out of partitionBy(…).")


def check_format(file_format: str, schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse rows that files of a format cannot hold, or of which ``partitionBy`` leaves nothing."""
    check_partition_by(schema, partition_by)
    stored = [field for field in schema.fields if field.name not in partition_by]
    if file_format == "parquet":
        check_parquet(schema)
    elif file_format == "csv":
        _check_csv(schema.fields)
    elif file_format == "text":
        _check_text(stored)


def check_parquet(schema: StructType) -> None:
    """Refuse structs without fields: Parquet has none, and Spark's writer says so only in its tasks."""
    for field in schema.fields:
        if _has_empty(field.dataType):
            message = (
                f"column {field.name!r} is {field.dataType.simpleString()}, and Parquet has no struct without fields. "
                f"Drop it from the result, or write it as text: to_json({field.name})."
            )
            raise AnalysisError(message)


def _has_empty(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return not kind.fields or any(_has_empty(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_empty(kind.elementType)
    return isinstance(kind, MapType) and (_has_empty(kind.keyType) or _has_empty(kind.valueType))


def _check_csv(fields: Sequence[StructField]) -> None:
    nested = [field.name for field in fields if isinstance(field.dataType, StructType | ArrayType | MapType)]
    if nested:
        message = (
            f"fileFormat: csv cannot hold the nested column {nested[0]!r}. Flatten it first, for a window with "
            'select("window.start", "window.end", …), or use parquet or json.'
        )
        raise AnalysisError(message)


def _check_text(fields: Sequence[StructField]) -> None:
    if len(fields) != 1 or not isinstance(fields[0].dataType, StringType):
        found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
        message = (
            f"fileFormat: text holds one column of strings, the rows have {found}. Make one of them, e.g. with "
            'select(F.to_json(F.struct("*")).alias("value")).'
        )
        raise AnalysisError(message)
