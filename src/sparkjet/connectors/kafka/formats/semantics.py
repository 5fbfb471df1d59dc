"""The meaning of numbers and texts in Kafka Connect and Debezium, which name types in Avro and JSON schemas alike."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.shapes import Shape

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_PREFIXES = ("io.debezium.", "org.apache.kafka.connect.data.")
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def zoned(value: str) -> int:
    """Microseconds since 1970 of a time with its zone, as in Debezium's ``ZonedTimestamp``.

    >>> zoned("2026-03-01T10:00:00.5Z"), zoned("1970-01-01T01:00:00+01:00")
    (1772359200500000, 0)
    """
    text = value[:-1] + "+00:00" if value.endswith("Z") else value
    head, point, rest = text.partition(".")
    if point:
        # Python 3.10 takes three digits or six, and Debezium writes as many as there are.
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = f"{head}.{rest[:digits][:6]:<06}{rest[digits:]}"
    return (dt.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def day(value: str) -> int:
    """Days since 1970 of a date as text; Debezium writes a zone after it, which means nothing.

    >>> day("1970-01-02Z"), day("1970-01-02")
    (1, 1)
    """
    return (dt.date.fromisoformat(value.removesuffix("Z")) - _EPOCH.date()).days


MILLISECONDS = shapes.TIMESTAMP.by(lambda value: value * 1_000)
NANOSECONDS = shapes.TIMESTAMP.by(lambda value: value // 1_000)
"""Spark counts microseconds: smaller digits are cut off."""
_NAMES: Mapping[str, Shape] = {
    "io.debezium.time.Date": shapes.DATE,
    "org.apache.kafka.connect.data.Date": shapes.DATE,
    "org.apache.kafka.connect.data.Timestamp": MILLISECONDS,
    # They are of columns without a zone: what a clock has shown, and no moment.
    "io.debezium.time.Timestamp": shapes.TIMESTAMP_NTZ.by(lambda value: value * 1_000),
    "io.debezium.time.MicroTimestamp": shapes.TIMESTAMP_NTZ,
    "io.debezium.time.NanoTimestamp": shapes.TIMESTAMP_NTZ.by(lambda value: value // 1_000),
    "io.debezium.time.IsoDate": shapes.DATE.by(day),
    "io.debezium.time.IsoTimestamp": shapes.TIMESTAMP_NTZ.by(zoned),
    "io.debezium.time.ZonedTimestamp": shapes.TIMESTAMP.by(zoned),
}


def connect_name(part: Mapping[str, Any]) -> str | None:
    """The name that Connect or Debezium give to the meaning of a type, if any."""
    name = part.get("connect.name") or part.get("name")
    return name if isinstance(name, str) and name.startswith(_PREFIXES) else None


def of_connect(kind: str, part: Mapping[str, Any]) -> Shape | None:
    """The shape of a type without parts that Connect or Debezium have named."""
    return None if kind in {"record", "error"} else _NAMES.get(connect_name(part) or "")


def of_connect_record(part: Mapping[str, Any]) -> Shape | None:
    """The shape of a record that stands for one value."""
    return shapes.STRING.by(variable_decimal) if connect_name(part) == VARIABLE_DECIMAL else None


def variable_decimal(value: Mapping[str, Any]) -> str:
    r"""A decimal whose values have different scales, as text: no type of Spark holds them all.

    >>> variable_decimal({"scale": 2, "value": b"\x30\x39"})
    '123.45'
    """
    return f"{unscaled(value['value'], value['scale']):f}"


def unscaled(value: bytes | str, scale: int) -> Decimal:
    """A decimal from its bytes, which JSON has in base 64.

    >>> unscaled("MDk=", 2)
    Decimal('123.45')
    """
    data = base64.b64decode(value, validate=True) if isinstance(value, str) else value
    return shapes.exact(int.from_bytes(data, "big", signed=True), scale)


def uuid_text(get: Callable[[Any], bytes]) -> Callable[[Any], str]:
    """The text of a UUID of 16 bytes."""
    return lambda value: str(uuid.UUID(bytes=get(value)))
