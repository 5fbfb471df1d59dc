"""Statistics of a Parquet file as in Delta's log, by which readers skip files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from typing import Any

import msgspec
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkjet.sinks.parquet_footer import ParquetFooter

LONGEST = 32
"""Characters of a string in the log, as every version is read by everyone."""
_LAST = "\U0010ffff"
_EXACT = 15
"""Decimal digits that a floating-point number keeps."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?Z?")
_START, _END = datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLI = 1000
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def as_json(footer: ParquetFooter, schema: StructType, columns: Sequence[Sequence[str]]) -> str:
    """The log's statistics of a file's columns, each given by the names that lead to it.

    Delta Kernel also reads footers, but with methods that Parquet has only since Spark 4.1, and it cuts times to
    milliseconds at both ends.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for names in columns:
        kind = _kind(schema, names)
        found = None if kind is None else footer.column(names, _reader(kind))
        if found is not None:
            _put(nulls, names, found.nulls)
            if found.low is not None and found.high is not None:
                _put(low, names, found.low)
                _put(high, names, found.high)
    whole = {"numRecords": footer.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return _ENCODER.encode(whole).decode()


@dataclass(frozen=True)
class Bounds:
    """Bounds of the values of columns, by name; unknown ones are left out.

    Args:
        columns: The least and the greatest value as in the log, both None if there are only nulls, and whether there
            are nulls.
    """

    columns: Mapping[str, tuple[Any, Any, bool]]

    @classmethod
    def of(cls, footers: Sequence[ParquetFooter], schema: StructType, columns: Sequence[str]) -> Bounds:
        """The bounds over several files."""
        texts = [as_json(footer, schema, [[column] for column in columns]) for footer in footers]
        each = [cls.logged(text, schema, columns).columns for text in texts]
        shared = [column for column in columns if all(column in found for found in each)]
        return cls({column: reduce(_united, (found[column] for found in each)) for column in shared})

    @classmethod
    def logged(cls, text: str | None, schema: StructType, columns: Sequence[str]) -> Bounds:
        """The bounds in the log for a file."""
        found = json.loads(text or "{}", parse_float=Decimal)
        low, high, nulls = (found.get(name, {}) for name in ("minValues", "maxValues", "nullCount"))
        known: dict[str, tuple[Any, Any, bool]] = {}
        for column in columns:
            ends = [_comparable(each.get(column), schema[column].dataType) for each in (low, high)]
            if None not in ends:
                known[column] = (*ends, nulls.get(column) != 0)
            elif column in nulls and nulls[column] == found.get("numRecords"):
                known[column] = (None, None, True)
        return cls(known)

    def may_meet(self, other: Bounds) -> bool:
        """Whether both may have a row with the same values, including nulls."""
        return all(_may_meet(self.columns[name], other.columns[name]) for name in self.columns.keys() & other.columns)


def _may_meet(one: tuple[Any, Any, bool], other: tuple[Any, Any, bool]) -> bool:
    if one[2] and other[2]:
        return True
    has_both = one[0] is not None and other[0] is not None
    return bool(has_both and one[0] <= other[1] and other[0] <= one[1])


def _united(one: tuple[Any, Any, bool], other: tuple[Any, Any, bool]) -> tuple[Any, Any, bool]:
    ends = [(low, high) for low, high, _ in (one, other) if low is not None]
    low, high = (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (None, None)
    return low, high, one[2] or other[2]


def _comparable(value: Any, kind: DataType) -> Any:
    """A bound in a form comparable with others of its column; None if it is not known for certain."""
    if isinstance(kind, StringType):
        # By code point, which is also the order of UTF-8; a collation has another.
        return value if isinstance(value, str) and kind == StringType() else None
    if isinstance(kind, IntegralType):
        return value if isinstance(value, int) else None
    if isinstance(kind, DecimalType) and isinstance(value, int | Decimal):
        # Others may write bounds that have gone through a floating-point number.
        return value if len(Decimal(value).as_tuple().digits) <= _EXACT else None
    if isinstance(kind, DateType):
        return value if isinstance(value, str) and _DAY.fullmatch(value) else None
    if isinstance(kind, TimestampType | TimestampNTZType) and isinstance(value, str) and _MOMENT.fullmatch(value):
        # Others may write zones in other ways.
        zone = timezone.utc if isinstance(kind, TimestampType) else None
        return datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=zone)
    return None


def _kind(schema: StructType, names: Sequence[str]) -> DataType | None:
    """The type of a possibly nested column of a struct, None if there is none."""
    kind: DataType = schema
    for name in names:
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def _reader(kind: DataType) -> Callable[[Any, Any], Any] | None:
    return next((read for family, read in _READERS.items() if isinstance(kind, family)), None)


def _put(into: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        into = into.setdefault(name, {})
    into[names[-1]] = value


def _numbers(found: Any, _: Any) -> Any:
    return found.min, found.max


def _floats(found: Any, _: Any) -> Any:
    # JSON has neither infinities nor NaN, and zeros have two signs in Parquet.
    return (found.min + 0.0, found.max + 0.0) if math.isfinite(found.min) and math.isfinite(found.max) else None


def _decimals(found: Any, _: Any) -> Any:
    both = found.min, found.max
    # Kernel reads fractions as floating-point numbers: bounds would be off, or have more digits than the type.
    return None if any(len(each.as_tuple().digits) > _EXACT for each in both) else both


def _texts(found: Any, _: Any) -> Any:
    try:
        low, high = found.min, found.max
    except UnicodeDecodeError:
        # Spark makes a string of any bytes.
        return None
    if len(high) > LONGEST:
        if high[LONGEST] == _LAST:
            # No string of this length comes after it.
            return None
        high = high[:LONGEST] + _LAST
    return low[:LONGEST], high


def _days(found: Any, _: Any) -> Any:
    first, last = (_time(each * 86_400_000_000) for each in (found.min_raw, found.max_raw))
    return None if first is None or last is None else (first.date().isoformat(), last.date().isoformat())


def _times(found: Any, chunk: Any, zone: str = "Z") -> Any:
    if chunk.physical_type != "INT64":
        return None
    # In milliseconds, as in the log: the lower bound is rounded down, the upper one up.
    first, last = _time(found.min_raw), _time(-(-found.max_raw // _MILLI) * _MILLI)
    return None if first is None or last is None else (_written(first, zone), _written(last, zone))


def _written(time: datetime, zone: str) -> str:
    return f"{time.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"


def _time(micros: int) -> datetime | None:
    """A time, None if Python or the log's format cannot represent it."""
    if not (_START - _EPOCH) // timedelta(microseconds=1) <= micros <= (_END - _EPOCH) // timedelta(microseconds=1):
        return None
    return _EPOCH + timedelta(microseconds=micros)


_READERS: Mapping[type[DataType], Callable[[Any, Any], Any]] = {
    IntegralType: _numbers,
    DecimalType: _decimals,
    FractionalType: _floats,
    StringType: _texts,
    DateType: _days,
    TimestampNTZType: lambda found, chunk: _times(found, chunk, ""),
    TimestampType: _times,
}
"""Readers of a row group's bounds by type family, narrower ones first; for other types only nulls are counted."""
