"""Batches: Arrow columns as COPY reads them, in PostgreSQL's binary format, or as CSV if one has no known binary form.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import compute, csv

Form = Callable[[pa.Array], pa.Array]
"""Turns a column into the bytes of each value; what it returns for nulls does not matter."""

_HEADER, _TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000
"""From 1970 to PostgreSQL's 2000."""


def copy_batches(
    cursor: psycopg.Cursor[Any],
    copy: str,
    types: str,
    batches: Iterable[pa.RecordBatch],
    instants: frozenset[int] = frozenset(),
) -> int | None:
    """COPY batches of one schema into a table, in the open transaction; returns the row count, None without rows."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    # Not by the server's count: it omits rows that a trigger has redirected to another table.
    if first is None:
        return None
    found = cursor.execute(types.encode()).fetchall()
    forms = forms_of(first.schema, [type_ for (type_,) in found])
    rows = chain([first], filled)
    chunks = csv_chunks(rows, instants) if forms is None else binary_chunks(rows, forms)
    with cursor.copy(f"{copy} (FORMAT {'csv' if forms is None else 'binary'}, ENCODING 'UTF8')".encode()) as copying:
        for chunk in chunks:
            copying.write(chunk)
    count = cursor.rowcount
    # Now that COPY has locked the table: a bigint that has become a double would be filled with nonsense.
    if forms is not None and cursor.execute(types.encode()).fetchall() != found:
        raise psycopg.errors.DatatypeMismatch("A column of the table was given another type while rows were written.")
    return count


def forms_of(schema: pa.Schema, types: Sequence[str | None]) -> list[Form] | None:
    """The binary forms of columns in a table whose columns have these types; None if one is not known."""
    forms = [_FORMS.get((field.type, type_ or "")) for field, type_ in zip(schema, types, strict=True)]
    known = [form for form in forms if form is not None]
    return known if len(known) == len(forms) else None


def csv_chunks(batches: Iterable[pa.RecordBatch], instants: frozenset[int] = frozenset()) -> Iterator[bytes]:
    """Batches as ``COPY … (FORMAT csv)`` reads them: an empty string is quoted, a null is empty.

    ``instants`` are microseconds since 1970, written without a zone, which is 27 times faster in Arrow: the
    transaction's zone is UTC.
    """
    options = csv.WriteOptions(include_header=False)
    for batch in batches:
        columns = [
            column.cast(pa.timestamp("us")) if number in instants else column
            for number, column in enumerate(batch.columns)
        ]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.record_batch(columns, names=[str(n) for n in range(len(columns))]), sink, options)
        yield sink.getvalue().to_pybytes()


def binary_chunks(batches: Iterable[pa.RecordBatch], forms: Sequence[Form]) -> Iterator[bytes]:
    """Batches as ``COPY … (FORMAT binary)`` reads them: in each row the number of fields, and each after its length."""
    yield _HEADER
    start = pa.scalar(len(forms).to_bytes(2, "big"), pa.binary())
    for batch in batches:
        fields = [_field(column, form(column)) for column, form in zip(batch.columns, forms, strict=True)]
        rows = _joined(start, *chain.from_iterable(fields))
        yield rows.buffers()[2].slice(0, compute.sum(compute.binary_length(rows)).as_py() or 0).to_pybytes()
    yield _TRAILER


def _field(column: pa.Array, values: pa.Array) -> list[pa.Array]:
    if pa.types.is_fixed_size_binary(values.type):
        parts = [pa.scalar(values.type.byte_width.to_bytes(4, "big"), pa.binary()), values.cast(pa.binary())]
    else:
        parts = [_swapped(compute.binary_length(values)).cast(pa.binary()), values]
    if not column.null_count:
        return parts
    # A null has the length -1 and no value.
    return [compute.if_else(column.is_valid(), _joined(*parts), pa.scalar(_NULL, pa.binary()))]


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return compute.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace")


def _swapped(numbers: pa.Array) -> pa.Array:
    """Numbers as bytes in network order."""
    width = numbers.type.bit_width // 8
    values = array({1: "b", 2: "h", 4: "i", 8: "q"}[width])
    values.frombytes(numbers.buffers()[1][numbers.offset * width : (numbers.offset + len(numbers)) * width])
    if sys.byteorder == "little":
        values.byteswap()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(numbers), [None, pa.py_buffer(values)])


def _number(stored: pa.DataType) -> Form:
    return lambda column: _swapped(column.cast(stored))


def _since_2000(whole: pa.DataType, offset: int) -> Form:
    # What overflows becomes the earliest number, which the server refuses; the very least would be its "-infinity".
    least = pa.scalar(1 - 2 ** (whole.bit_width - 1) + offset, whole)

    def form(column: pa.Array) -> pa.Array:
        numbers = compute.max_element_wise(column.cast(whole), least)
        return _swapped(compute.subtract(numbers, pa.scalar(offset, whole)))

    return form


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _json(column: pa.Array) -> pa.Array:
    # The version of jsonb's binary form.
    return _joined(pa.scalar(b"\1", pa.binary()), column.cast(pa.binary()))


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FORMS: Mapping[tuple[pa.DataType, str], Form] = {
    **{
        (kind, type_): _number(stored)
        for type_, stored in (("smallint", pa.int16()), ("integer", pa.int32()), ("bigint", pa.int64()))
        for kind in _INTEGERS
        if kind.bit_width <= stored.bit_width
    },
    (pa.bool_(), "boolean"): _number(pa.int8()),
    (pa.float32(), "real"): _number(pa.float32()),
    (pa.float32(), "double precision"): _number(pa.float64()),
    (pa.float64(), "double precision"): _number(pa.float64()),
    (pa.date32(), "date"): _since_2000(pa.int32(), _DAYS),
    (pa.timestamp("us"), "timestamp without time zone"): _since_2000(pa.int64(), _MICROSECONDS),
    # Numbers for such a column are always microseconds since 1970.
    (pa.int64(), "timestamp with time zone"): _since_2000(pa.int64(), _MICROSECONDS),
    (pa.string(), "text"): _text,
    (pa.string(), "character varying"): _text,
    (pa.string(), "jsonb"): _json,
}
"""Forms by a column's type in Arrow and in the table; decimals, arrays, bytes and intervals are written as CSV."""
