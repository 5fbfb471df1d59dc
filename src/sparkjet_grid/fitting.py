"""Casts rows to the types of a map or a journal, including casts that Arrow refuses."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types


@dataclass(frozen=True)
class _Declared:
    """An array that is re-imported with another type of the same memory layout."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.kind.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to the types of a schema, for instance from the session's time zone in batches of Spark.

    Where a struct is null, Spark leaves nulls in its fields, even in those declared not nullable. Arrow refuses to cast
    these, even to the type that they have.
    """
    columns = [_fitted(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    nullable = _nullable(kind)
    # Arrow drops chunks without rows, but callers expect the one chunk of a batch.
    chunks = column.cast(nullable).chunks or [pa.array([], nullable)]
    return pa.chunked_array(chunks if nullable == kind else [pa.array(_Declared(each, kind)) for each in chunks], kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type with all its fields nullable, except the keys of maps.

    >>> str(_nullable(pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int8(), False)), False)])))
    'struct<a: list<element: int8>>'
    """
    if types.is_struct(kind):
        return pa.struct([_nullable_field(field) for field in kind])
    if types.is_list(kind):
        return pa.list_(_nullable_field(kind.value_field))
    if types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_nullable(kind.key_type)), _nullable_field(kind.item_field))
    return kind


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable(field.type)).with_nullable(True)
