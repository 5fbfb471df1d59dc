"""Rows with the types that a map or a journal has, also those that Arrow refuses to cast."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types


@dataclass(frozen=True)
class _Declared:
    """An array that is imported with another type, of which memory is laid out alike."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.kind.__arrow_c_schema__(), self.array.__arrow_c_array__()[1]


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the types of a schema; in those of a batch of Spark's is the session's time zone, for instance.

    Where a struct is null, Spark leaves nulls in its fields, of which some are declared to have none. Arrow refuses to
    cast these, even to the type that they have.
    """
    columns = [_fitted(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    nullable = _nullable(kind)
    # Arrow leaves out chunks without rows, and who looks at the one of a batch would find none.
    chunks = column.cast(nullable).chunks or [pa.array([], nullable)]
    return pa.chunked_array(chunks if nullable == kind else [pa.array(_Declared(each, kind)) for each in chunks], kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type without fields that are never null, but for the keys of maps.

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
