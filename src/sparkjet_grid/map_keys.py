"""Keys of maps: their text, which is the same in Spark and in Python, and the hash that determines their partition."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from typing import cast

import pyarrow as pa
from pyarrow import types

from sparkjet_grid.errors import AnalysisError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "integer": int,
    "text": str,
    "boolean": lambda text: {"true": True, "false": False}[text],
    "date": date.fromisoformat,
    "moment": datetime.fromisoformat,
}


def kind_of(kind: pa.DataType) -> str | None:
    """The kind of key that a column of a type is; None if keys cannot have this type."""
    if types.is_integer(kind):
        return "integer"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date32(kind):
        return "date"
    if types.is_timestamp(kind) and kind.tz is not None:
        return "moment"
    return None


def key_of(given: object, kinds: Sequence[str]) -> tuple[object, ...]:
    """A key from JSON: a list with a value for each key column, dates and moments as text.

    >>> key_of(["a", "2026-01-05"], ["text", "date"])
    ('a', datetime.date(2026, 1, 5))
    """
    # Otherwise the characters of a text, the names of an object, or texts such as "null" and "[1]" would be looked for.
    if not isinstance(given, list) or any(each is None or isinstance(each, (dict, list)) for each in given):
        raise ValueError(f"{given!r} is not a list of values")
    parts = [each if isinstance(each, str) else json.dumps(each) for each in given]
    try:
        return tuple(_FROM_TEXT[kind](part) for kind, part in zip(kinds, parts, strict=True))
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def text_of(values: Sequence[object], kinds: Sequence[str]) -> str:
    """The text of a key, which differs from that of any other key.

    >>> text_of(["a", 12], ["text", "integer"])
    '1:a2:12'
    """
    [text] = texts_of_keys([values], kinds)
    return text


def texts_of_keys(keys: Sequence[Sequence[object]], kinds: Sequence[str]) -> list[str]:
    """The text of each key, computed by column, as many keys are looked up together."""
    for key in keys:
        if len(key) != len(kinds):
            message = f"key: {tuple(key)!r} has {len(key)} values, and the keys of this map have {len(kinds)}."
            raise AnalysisError(message)
    if not keys:
        return []
    columns = [_parts(values, kind) for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    if len(columns) == 1:
        # Most maps have one key column.
        return [f"{len(part)}:{part}" for part in columns[0]]
    return [joined(parts) for parts in zip(*columns, strict=True)]


def texts_of(columns: Sequence[pa.Array]) -> list[str]:
    """The text of each row's key, see :func:`text_of`."""
    return [joined(parts) for parts in zip(*map(_stored, columns), strict=True)]


def joined(parts: Sequence[str]) -> str:
    """Texts prefixed with their lengths in characters, so that different lists give different results."""
    return "".join(f"{len(part)}:{part}" for part in parts)


def hash_of(text: str) -> int:
    """The hash of a key's text by which rows are found: CRC-32 of its UTF-8, which Spark computes too."""
    return zlib.crc32(text.encode())


def _stored(column: pa.Array) -> list[str]:
    # By column: asking Arrow for a single value takes longer than finding its row.
    if types.is_boolean(column.type):
        return ["true" if value else "false" for value in column.to_pylist()]
    # Dates and moments as Arrow stores them: in days, or microseconds.
    if types.is_temporal(column.type):
        column = column.view(pa.int32() if types.is_date32(column.type) else pa.int64())
    try:
        values = column.to_pylist()
    except UnicodeDecodeError as error:
        raise AnalysisError(f"key: {error.object!r} is not Unicode text: it is not in UTF-8.") from error
    return values if types.is_string(column.type) or types.is_large_string(column.type) else [*map(str, values)]


def _parts(values: Sequence[object], kind: str) -> Sequence[str]:
    """The values of a key column as text."""
    found = {*map(type, values)}
    if kind == "integer" and found == {int}:
        return [*map(str, values)]
    if kind == "text" and found == {str}:
        texts = cast("Sequence[str]", values)
        # A text that is not valid Unicode is reported by :func:`_part`.
        with suppress(UnicodeEncodeError):
            "".join(texts).encode()
            return texts
    return [_part(value, kind) for value in values]


def _part(value: object, kind: str) -> str:
    # bool is an int, and datetime a date.
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind == "text" and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # As in Python's strings for arguments, or file names, that are not UTF-8.
            raise AnalysisError(f"key: {value!r} is not Unicode text: it has half of a surrogate pair.") from error
        return value
    if kind == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    if kind == "date" and isinstance(value, date) and not isinstance(value, datetime):
        return str((value - _EPOCH.date()).days)
    if kind == "moment" and isinstance(value, datetime) and value.tzinfo is not None:
        return str((value - _EPOCH) // _MICROSECOND)
    wanted = {
        "integer": "an int",
        "text": "a str",
        "boolean": "a bool",
        "date": "a date",
        "moment": "a datetime with a time zone",
    }
    raise AnalysisError(f"key: {value!r} is {type(value).__name__}, and the map's key is {wanted[kind]}.")
