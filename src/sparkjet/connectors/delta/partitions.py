"""Values of partition columns: from the paths that Spark writes to the literals that Delta takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from sparkjet.connectors.delta.log_committer import KERNEL
from sparkjet.java import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def can_partition_by(kind: DataType) -> bool:
    """Whether values of a type can occur in paths, and in Delta's log."""
    # A collation is not part of a path, and other string types have lengths.
    return isinstance(kind, DecimalType) or (type(kind) in _READERS and kind == type(kind)())


def literal(session: SparkSession, kind: DataType, value: str | None) -> Any:
    """A value of a partition column as Kernel takes it; timestamps are in UTC."""
    literals = java_class(session, f"{KERNEL}.expressions.Literal")
    if value is None:
        return literals.ofNull(_java_type(session, kind))
    if isinstance(kind, DecimalType):
        exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
        return literals.ofDecimal(exact, kind.precision, kind.scale)
    name, read = _READERS[type(kind)]
    return getattr(literals, f"of{name}")(read(session, value))


def _day(session: SparkSession, value: str) -> int:
    return int(java_class(session, "java.time.LocalDate").parse(value).toEpochDay())


def _micros(session: SparkSession, value: str) -> int:
    """Microseconds since 1970 of a time as written by Spark; Python's times end in the year 9999."""
    java = java_class(session, "java.time.LocalDateTime").parse(value.replace(" ", "T"))
    utc = java_class(session, "java.time.ZoneOffset").UTC
    return int(java.toEpochSecond(utc)) * 1_000_000 + int(java.getNano()) // 1000


def _java_type(session: SparkSession, kind: DataType) -> Any:
    name = type(kind).__name__
    java = java_class(session, f"{KERNEL}.types.{name}")
    if isinstance(kind, DecimalType):
        return java(kind.precision, kind.scale)
    return getattr(java, "TIMESTAMP_NTZ" if isinstance(kind, TimestampNTZType) else name.removesuffix("Type").upper())


_EXACT = Context(prec=38)
"""Spark's decimals have 38 digits, Python's default context has 28."""
_READERS: Mapping[type[DataType], tuple[str, Callable[[SparkSession, str], Any]]] = {
    BooleanType: ("Boolean", lambda _, text: text == "true"),
    ByteType: ("Byte", lambda _, text: int(text)),
    ShortType: ("Short", lambda _, text: int(text)),
    IntegerType: ("Int", lambda _, text: int(text)),
    LongType: ("Long", lambda _, text: int(text)),
    FloatType: ("Float", lambda _, text: float(text)),
    DoubleType: ("Double", lambda _, text: float(text)),
    StringType: ("String", lambda _, text: text),
    DateType: ("Date", _day),
    TimestampType: ("Timestamp", _micros),
    TimestampNTZType: ("TimestampNtz", _micros),
}
"""Kernel's names for values of a type, and how to read them."""
