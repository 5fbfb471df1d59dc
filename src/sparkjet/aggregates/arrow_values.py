"""Conversion between Arrow and Python: what a user's function receives, and what it may return for a declared type.

Runs in Spark's Python workers, to which this module is shipped with the functions: it imports only pyarrow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

_UNCHANGED = ((pa.types.is_integer, int), (pa.types.is_floating, float), (pa.types.is_string, str))


class UnfitValueError(Exception):
    """A value that does not have the declared type.

    Attributes:
        value: The value.
        reason: What is wrong with it.
    """

    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(value, reason)
        self.value = value
        self.reason = reason


def read(array: pa.Array, *, as_dict: bool = True) -> list[Any]:
    """The values of an array: structs and maps as dicts, timestamps with their zone.

    >>> read(pa.array([{"n": 1, "names": ["a"]}, None]), as_dict=False)
    [(1, ['a']), None]
    """
    if pa.types.is_struct(array.type):
        names = [array.type.field(i).name for i in range(array.type.num_fields)]
        rows: list[Any] = list(zip(*(read(child) for child in array.flatten()), strict=True))
        if as_dict:
            rows = [dict(zip(names, row, strict=True)) for row in rows]
        if array.null_count:
            rows = [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
        return rows
    convert = _converter(array.type)
    values: list[Any] = array.to_pylist()
    return values if convert is None else [convert(value) for value in values]


def write(values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    """An array of a declared type; structs may be dicts or tuples.

    >>> write([(1, 2.5), {"n": None, "x": 1}, None], pa.struct([("n", pa.int64()), ("x", pa.float64())])).to_pylist()
    [{'n': 1, 'x': 2.5}, {'n': None, 'x': 1.0}, None]
    """
    try:
        return _array(values, declared)
    except Exception:
        # The fast path does not tell which value it was.
        for value in values:
            try:
                _array([value], declared)
            except Exception as error:
                raise UnfitValueError(value, str(error)) from error
        raise


def _array(values: Sequence[Any], declared: pa.DataType) -> pa.Array:
    if pa.types.is_struct(declared):
        fields = [declared.field(i) for i in range(declared.num_fields)]
        missing = [value is None for value in values]
        rows = [(None,) * len(fields) if value is None else _row(value, declared) for value in values]
        columns = list(zip(*rows, strict=True)) or [()] * len(fields)
        children = [_array(column, field.type) for column, field in zip(columns, fields, strict=True)]
        mask = pa.array(missing, pa.bool_()) if any(missing) else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    usual = next((kind for test, kind in _UNCHANGED if test(declared)), None)
    if usual is None or not set(map(type, values)) <= {usual, type(None)}:
        values = [_plain(value, declared) for value in values]
    return pa.array(values, declared)


def _row(value: Any, declared: pa.DataType) -> tuple[Any, ...]:
    names = [declared.field(i).name for i in range(declared.num_fields)]
    if isinstance(value, dict):
        if value.keys() != set(names):
            raise ValueError(f"the fields are {names}, not {list(value)}")
        return tuple(value[name] for name in names)
    if not isinstance(value, tuple):
        raise TypeError(f"{type(value).__name__} is not a tuple or dict of {names}")
    if len(value) != len(names):
        raise ValueError(f"{len(names)} fields, {names}, not {len(value)}")
    return value


def _plain(value: Any, declared: pa.DataType) -> Any:
    """A value prepared for pyarrow, which would silently change some types of values."""
    if value is None:
        return None
    if pa.types.is_integer(declared):
        return operator.index(value)  # pyarrow truncates 1.5 to 1
    if pa.types.is_timestamp(declared) and declared.tz is not None and value.tzinfo is None:
        raise ValueError("a datetime without a zone is ambiguous; give it one")
    if pa.types.is_list(declared):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{type(value).__name__} is not a list")
        return [_plain(item, declared.value_type) for item in value]
    if pa.types.is_map(declared):
        if not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} is not a dict")
        return [(_plain(k, declared.key_type), _plain(v, declared.item_type)) for k, v in value.items()]
    if pa.types.is_struct(declared):
        fields = [declared.field(i) for i in range(declared.num_fields)]
        row = _row(value, declared)
        return {field.name: _plain(item, field.type) for field, item in zip(fields, row, strict=True)}
    return value


def _converter(found: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that turns maps, which pyarrow returns as lists of pairs, into dicts; None if there are none."""
    if pa.types.is_map(found):
        inner = _converter(found.item_type) or _same
        return lambda value: None if value is None else {key: inner(item) for key, item in value}
    if pa.types.is_list(found):
        convert = _converter(found.value_type)
        return None if convert is None else lambda value: None if value is None else [convert(item) for item in value]
    if pa.types.is_struct(found):
        converters = {found.field(i).name: _converter(found.field(i).type) for i in range(found.num_fields)}
        if any(converters.values()):
            return lambda value: (
                None if value is None else {name: (converters[name] or _same)(item) for name, item in value.items()}
            )
    return None


def _same(value: Any) -> Any:
    return value
