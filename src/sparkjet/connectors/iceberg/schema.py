"""Schemas: from Spark's types to Iceberg's JSON, and back with the ids of fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkjet.errors import AnalysisError

ID = "parquet.field.id"
"""Metadata of a field from which Spark's Parquet writer takes its id."""
_TYPES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamptz": TimestampType(),
    "timestamp": TimestampNTZType(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def widened(kind: DataType) -> DataType:
    """A type with Iceberg's integers, the smallest of which has four bytes."""
    if isinstance(kind, ByteType | ShortType):
        return IntegerType()
    if isinstance(kind, StructType):
        fields = [StructField(each.name, widened(each.dataType), each.nullable) for each in kind.fields]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(widened(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(widened(kind.keyType), widened(kind.valueType), kind.valueContainsNull)
    return kind


def new_schema(schema: StructType, first: int = 1) -> dict[str, Any]:
    """The schema of a new table as Iceberg's JSON; all columns may be null, so that any later row fits."""
    check_case(schema.fieldNames(), "the result")
    ids = count(first)
    fields = []
    # Iceberg assigns ids level by level, and takes the ids given for a new table only as names.
    for field in schema.fields:
        try:
            fields.append({"id": next(ids), "name": field.name, "required": False, "type": _json(field.dataType, ids)})
        except _NoTypeError as error:
            message = (
                f"column {field.name!r} is {field.dataType.simpleString()}, and Iceberg has no {error}. Cast it, or "
                "drop it from the result."
            )
            raise AnalysisError(message) from None
    return {"type": "struct", "fields": fields}


def check_case(names: Iterable[str], where: str) -> None:
    """Refuse columns whose names differ only in case: rows would go into the last one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"{where} has columns {other!r} and {name!r}, which Spark takes for one. Rename one of them."
            raise AnalysisError(message)


def spark_schema(found: Mapping[str, Any]) -> StructType:
    """A table's schema in Spark, with the ids of its fields; columns whose types Spark lacks are left out."""
    return StructType([each for each in map(_field, found["fields"]) if each is not None])


def is_by_names(kind: DataType) -> bool:
    """Whether a column's files cannot have all ids: Spark's writer has none for elements, keys and values.

    Readers take a file without any ids by the table's mapping of names. In one with some, anything without an id is
    null.
    """
    if isinstance(kind, StructType):
        return any(is_by_names(each.dataType) for each in kind.fields)
    return isinstance(kind, ArrayType | MapType)


def without_ids(kind: DataType) -> DataType:
    """A type without the ids of its fields."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, without_ids(each.dataType), each.nullable) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(without_ids(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(without_ids(kind.keyType), without_ids(kind.valueType), kind.valueContainsNull)
    return kind


def ids_of(field: Mapping[str, Any]) -> Iterator[int]:
    """The ids of an Iceberg field and everything in it."""
    return (number for number, _ in named_ids([field]))


def named_ids(fields: Iterable[Mapping[str, Any]], within: str = "") -> Iterator[tuple[int, str]]:
    """The ids of Iceberg fields and everything in them, with readable names."""
    for field in fields:
        yield field["id"], f"{within}{field['name']}"
        yield from _ids_in(field["type"], f"{within}{field['name']}.")


def path_of(schema: StructType, number: int) -> Sequence[StructField] | None:
    """The field with an id, after the structs that contain it; None if there is none outside lists and maps."""
    for field in schema.fields:
        if field.metadata.get(ID) == number:
            return [field]
        if isinstance(field.dataType, StructType):
            found = path_of(field.dataType, number)
            if found is not None:
                return [field, *found]
    return None


class _NoTypeError(Exception):
    """Iceberg has no such type."""


def _json(kind: DataType, ids: Iterator[int]) -> Any:
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    if isinstance(kind, StructType):
        fields = [
            {"id": next(ids), "name": each.name, "required": False, "type": _json(each.dataType, ids)}
            for each in kind.fields
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, ArrayType):
        element = next(ids)
        made = _json(kind.elementType, ids)
        return {"type": "list", "element-id": element, "element-required": False, "element": made}
    if isinstance(kind, MapType):
        key, value = next(ids), next(ids)
        keys, values = _json(kind.keyType, ids), _json(kind.valueType, ids)
        return {
            "type": "map",
            "key-id": key,
            "key": keys,
            "value-id": value,
            "value-required": False,
            "value": values,
        }
    found = next((name for name, each in _TYPES.items() if each == widened(kind)), None)
    if found is None:
        raise _NoTypeError(kind.simpleString())
    return found


def _field(found: Mapping[str, Any]) -> StructField | None:
    kind = _spark_type(found["type"])
    return None if kind is None else StructField(found["name"], kind, not found["required"], {ID: found["id"]})


def _spark_type(found: Any) -> DataType | None:
    """Spark's type, None if it has no such type."""
    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        return _TYPES.get(found) if decimal is None else DecimalType(int(decimal[1]), int(decimal[2]))
    if found["type"] == "struct":
        fields = [_field(each) for each in found["fields"]]
        return None if None in fields else StructType([each for each in fields if each is not None])
    if found["type"] == "list":
        element = _spark_type(found["element"])
        return None if element is None else ArrayType(element, not found["element-required"])
    keys, values = _spark_type(found["key"]), _spark_type(found["value"])
    return None if keys is None or values is None else MapType(keys, values, not found["value-required"])


def _ids_in(found: Any, within: str) -> Iterator[tuple[int, str]]:
    if isinstance(found, str):
        return
    yield from named_ids(found.get("fields", ()), within)
    for part in ("element", "key", "value"):
        if part in found:
            yield found[f"{part}-id"], f"{within}{part}"
            yield from _ids_in(found[part], f"{within}{part}.")
