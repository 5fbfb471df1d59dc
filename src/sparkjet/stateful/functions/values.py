"""Values of state as users see them, to and from Arrow by the declared schema.

Runs in Spark's Python workers. In between, values take the form that Spark gives them by ``toInternal`` and
``fromInternal`` of their data type.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegralType,
    MapType,
    StructType,
)

from sparkjet.spark_line import arrow_type

_WITHOUT_NAN = (IntegralType, BooleanType, DecimalType, BinaryType)
_PLAIN = (bool, int, float, str, bytes, type(None))


class UnfitStateError(Exception):
    """A value does not fit the schema of its state variable."""


class StateValues:
    """Tuples of one schema.

    Args:
        schema: The declared schema.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = schema
        self.arrow = arrow_type(schema)
        self.immutable = not any(isinstance(each.dataType, ArrayType | MapType | StructType) for each in schema.fields)
        """Whether a tuple handed out cannot be changed."""
        self._converts = any(each.needConversion() for each in schema.fields)
        self._without_nan = [isinstance(each.dataType, _WITHOUT_NAN) for each in schema.fields]

    def normalized(self, value: Iterable[Any]) -> tuple[Any, ...]:
        """A user's value without NumPy and pandas types, independent of what was passed."""
        found = tuple([each if type(each) in _PLAIN else _plain(each) for each in value])
        if float not in map(type, found) or len(found) != len(self._without_nan):
            return found
        # Here too, so that it is read as it would be after a restart.
        lacks = zip(found, self._without_nan, strict=True)
        return tuple([_null_for_nan(each) if without else each for each, without in lacks])

    def identity(self, value: tuple[Any, ...]) -> Hashable:
        """A dict key that is the same for equal normalized values."""
        return value if self.immutable and not self._converts else repr(self.schema.toInternal(value))

    def read(self, array: pa.Array) -> list[tuple[Any, ...] | None]:
        """The tuples of a struct array."""
        found = _read(array)
        if not self._converts:
            return found
        return [None if each is None else tuple(self.schema.fromInternal(each)) for each in found]

    def write(self, values: Sequence[tuple[Any, ...] | None]) -> pa.Array:
        """A struct array of normalized tuples."""
        try:
            return self._write(values)
        except Exception:
            # The fast path does not tell which value it was.
            for value in values:
                try:
                    self._write([value])
                except Exception as error:
                    raise UnfitStateError(f"{value!r} does not fit {self.schema.simpleString()}: {error}") from error
            raise

    def _write(self, values: Sequence[tuple[Any, ...] | None]) -> pa.Array:
        if self._converts:
            values = [None if each is None else self.schema.toInternal(each) for each in values]
        return _write(values, self.arrow)


def arrow_of(declared: DataType) -> pa.DataType:
    """The Arrow type of a column of state."""
    return arrow_type(declared)


def _plain(value: Any) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__fields__") or hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))  # Row and named tuples
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
    return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value


def _read(array: pa.Array) -> list[Any]:
    """Spark's internal values: structs are tuples, instants and dates are numbers."""
    if pa.types.is_struct(array.type):
        rows: list[Any] = list(zip(*map(_read, array.flatten()), strict=True))
    elif pa.types.is_map(array.type):
        # Of the whole array that this one may be a slice of.
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys, items = (iter(_read(each.slice(first, last - first))) for each in (array.keys, array.items))
        rows = [dict(zip(_taken(keys, n), _taken(items, n), strict=True)) for n in lengths(array)]
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        rows = split(_read(array.flatten()), lengths(array))
    else:
        return _numbers(array).to_pylist()  # type: ignore[no-any-return]
    if array.null_count:
        rows = [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return rows


def _numbers(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        return array.cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(array.type) else array


def _write(values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    if pa.types.is_struct(declared):
        return _written_structs(values, declared)
    if pa.types.is_map(declared):
        pairs = [None if each is None else list(each.items()) for each in values]
        flat = [pair for each in pairs for pair in each or ()]
        keys = _write([key for key, _ in flat], declared.key_type)
        items = _write([item for _, item in flat], declared.item_type)
        return pa.MapArray.from_arrays(_offsets(pairs), keys, items, declared)
    if pa.types.is_list(declared):
        items = _write(list(chain.from_iterable(each or () for each in values)), declared.value_type)
        return written_lists(values, items, declared)
    if pa.types.is_integer(declared):
        known = map(_null_for_nan, values)
        values = [each if type(each) is int or each is None else _whole(each) for each in known]
    elif pa.types.is_boolean(declared) or pa.types.is_decimal(declared) or pa.types.is_binary(declared):
        values = [*map(_null_for_nan, values)]
    elif pa.types.is_timestamp(declared) or pa.types.is_duration(declared):
        return pa.array(values, pa.int64()).cast(declared)
    elif pa.types.is_date32(declared):
        return pa.array(values, pa.int32()).cast(declared)
    return pa.array(values, declared)


def _null_for_nan(value: Any) -> Any:
    """The value that Spark stores for NaN if the declared type has none: null, for which pandas uses NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _whole(value: Any) -> int:
    """A number as an int: pyarrow would truncate 1.5 to 1. In pandas, integers in a column with nulls are floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)


def _written_structs(values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    fields = [declared.field(i) for i in range(declared.num_fields)]
    missing = [each is None for each in values]
    rows = [(None,) * len(fields) if each is None else each for each in values]
    if any(len(row) != len(fields) for row in rows):
        wrong = next(row for row in rows if len(row) != len(fields))
        raise ValueError(f"{len(wrong)} values for {len(fields)} fields")
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    children = [_write(column, field.type) for column, field in zip(columns, fields, strict=True)]
    mask = pa.array(missing, pa.bool_()) if any(missing) else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def written_lists(lists: Sequence[Sequence[Any] | None], items: pa.Array, declared: pa.DataType) -> pa.Array:
    """A list array of the flat ``items``, with the lengths of ``lists``; null where there is no list."""
    return pa.ListArray.from_arrays(_offsets(lists), items, declared)


def split(items: Iterable[Any], counts: Iterable[int]) -> list[list[Any]]:
    """Flat items as lists of these lengths.

    >>> split([1, 2, 3], [2, 0, 1])
    [[1, 2], [], [3]]
    """
    each = iter(items)
    return [_taken(each, count) for count in counts]


def _taken(items: Any, length: int) -> list[Any]:
    return [next(items) for _ in range(length)]


def lengths(array: pa.Array) -> list[int]:
    """Lengths of lists or maps, 0 for nulls."""
    offsets = array.offsets.to_pylist()
    each = [stop - start for start, stop in pairwise(offsets)]
    if not array.null_count:
        return each
    return [length if valid else 0 for length, valid in zip(each, array.is_valid().to_pylist(), strict=True)]


def _offsets(lists: Sequence[Sequence[Any] | None]) -> pa.Array:
    """Offsets of consecutive lists; null where there is no list, as pyarrow wants it."""
    ends = list(accumulate((len(each or ()) for each in lists), initial=0))
    starts = [None if each is None else start for each, start in zip(lists, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())
