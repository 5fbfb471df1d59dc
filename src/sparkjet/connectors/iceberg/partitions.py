"""Partitions: the results of a spec's transforms, as text in paths and as Iceberg's JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.expressions import column_of, expression_of
from sparkjet.connectors.iceberg.schema import path_of
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.java import as_seq, java_class, nothing

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_SECOND, _HOUR, _DAY = 1_000_000, 3_600_000_000, 86_400_000_000
_MONTHS, _START = 12, 1970
_EPOCH = date(1970, 1, 1)
_MOST, _KEPT = 38, 6
"""Digits of Spark's longest decimals, and fractional digits that it keeps whatever the size of the integer part."""
_EXACT = Context(prec=_MOST)
_WRITTEN = re.compile(r"(?:(years?|months?|days?|hours?)\((.+)\)|(bucket|truncate)\((\d+),\s*(.+)\))")
_PARTS = re.compile(r"(bucket|truncate)\[(\d+)\]")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_MURMUR = "org.apache.commons.codec.digest.MurmurHash3"
_POSITIVE = 0x7FFFFFFF
_OF_TIME = {"year", "month", "day", "hour"}


@dataclass(frozen=True)
class Part:
    """A field of a partition spec.

    Attributes:
        number: Its id.
        name: Name of the column by which Spark's writer makes directories.
        transform: Iceberg's name for it, such as ``day`` or ``truncate[4]``.
        source: The fields that lead to its source column.
    """

    number: int
    name: str
    transform: str
    source: Sequence[StructField]

    @property
    def kind(self) -> DataType:
        """The type of its source column."""
        return self.source[-1].dataType

    def column(self, session: SparkSession) -> Column:
        """The text of its value, for rows whose columns have the table's names."""
        column = F.col(quoted(self.source[0].name))
        for field in self.source[1:]:
            column = column.getField(field.name)
        return _text(_transformed(column, self.kind, self.transform, session), self.result).alias(self.name)

    @property
    def result(self) -> DataType:
        """The type of its values in Spark; for days, a date."""
        if self.transform == "day":
            return DateType()
        return IntegerType() if self.transform in _OF_TIME or self.transform.startswith("bucket") else self.kind

    def value(self, text: str | None) -> Any:
        """A value in Iceberg's JSON single-value serialization."""
        try:
            return None if text is None else _VALUES[type(self.result)](text, self.result)
        except OverflowError as error:
            message = (
                f"iceberg: {self.source[-1].name!r}, by which the table is partitioned, has a time outside of the "
                "years 1 to 9999. Leave such rows out."
            )
            raise SinkError(message) from error


def parts_of(spec: Mapping[str, Any], schema: StructType, where: str) -> list[Part]:
    """The fields of a spec, without those that are always null."""
    beginning = "_sparkjet"
    while any(name.lower().startswith(beginning) for name in schema.fieldNames()):
        beginning = f"_{beginning}"
    found = []
    for number, field in enumerate(spec["fields"]):
        transform = field["transform"]
        if transform == "void":
            continue
        sources = field.get("source-ids", [field.get("source-id")])
        path = path_of(schema, sources[0]) if len(sources) == 1 else None
        part = None if path is None else Part(field["field-id"], f"{beginning}_{number}", transform, path)
        if part is None or not _is_written(part):
            message = (
                f"{where} is partitioned by {field['name']!r} ({transform}), which sparkjet does not write. Write to "
                "another table, or merge the rows yourself in foreachBatch(…)."
            )
            raise AnalysisError(message)
        found.append(part)
    return found


def new_spec(partition_by: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a new table: columns, and transforms as in SQL: ``days(ts)``, ``truncate(4, k)``."""
    columns = {field["name"].lower(): field for field in schema["fields"]}
    fields = []
    for number, text in enumerate(partition_by):
        column, transform = (text, "identity") if text.lower() in columns else _read(text)
        source = columns.get(column.lower())
        if source is None:
            names = ", ".join(field["name"] for field in schema["fields"])
            message = (
                f"partitionBy: no column {column!r} in the result. Columns: {names}. Transforms are written as in SQL: "
                '"days(ts)", "hours(ts)", "truncate(4, k)", "bucket(16, k)".'
            )
            raise AnalysisError(message)
        word = transform.partition("[")[0]
        name = source["name"] if word == "identity" else f"{source['name']}_{word.replace('truncate', 'trunc')}"
        fields.append({"name": name, "transform": transform, "source-id": source["id"], "field-id": 1000 + number})
    return {"spec-id": 0, "fields": fields}


def same_spec(one: Mapping[str, Any], other: Mapping[str, Any], schema: StructType, rows: StructType) -> bool:
    """Whether a table's spec partitions in the same way as another, whose schema has different ids."""

    def described(spec: Mapping[str, Any], columns: StructType) -> list[tuple[list[str], str]]:
        paths = [(path_of(columns, each["source-id"]) or [], each["transform"]) for each in spec["fields"]]
        return [([field.name.lower() for field in path], transform) for path, transform in paths if transform != "void"]

    return described(one, schema) == described(other, rows)


def _read(text: str) -> tuple[str, str]:
    """A column and its transform; the whole text if there is no transform."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return text, "identity"
    if found[1] is not None:
        return found[2].strip(), found[1].removesuffix("s")
    return found[5].strip(), f"{found[3]}[{found[4]}]"


def _is_written(part: Part) -> bool:
    kind, transform = part.kind, part.transform
    if type(kind) not in _VALUES or (isinstance(kind, StringType) and kind != StringType()):
        return False
    if transform in _OF_TIME:
        is_day = isinstance(kind, DateType) and transform != "hour"
        return is_day or isinstance(kind, TimestampType | TimestampNTZType)
    if transform.startswith("truncate["):
        if isinstance(kind, DecimalType) and kind.precision == _MOST and kind.scale > _KEPT:
            # Spark's subtraction loses its last digit: readers would skip files that have what they look for.
            return False
        return isinstance(kind, IntegerType | LongType | DecimalType | StringType | BinaryType)
    return transform == "identity" or (transform.startswith("bucket[") and not isinstance(kind, BooleanType))


def _transformed(column: Column, kind: DataType, transform: str, session: SparkSession) -> Column:
    sized = _PARTS.fullmatch(transform)
    if sized is not None and sized[1] == "bucket":
        if isinstance(kind, DateType):
            column = F.unix_date(column)
        elif isinstance(kind, TimestampType | TimestampNTZType):
            column = _micros(column, kind)
        return _bucketed(column, kind, int(sized[2]), session)
    if sized is not None:
        return _truncated(column, kind, int(sized[2]))
    if transform == "identity":
        return column
    if transform == "hour":
        return _floor(_micros(column, kind), _HOUR)
    days = F.unix_date(column) if isinstance(kind, DateType) else _floor(_micros(column, kind), _DAY)
    day = F.date_from_unix_date(days.cast("int"))
    if transform == "day":
        return day
    years = F.year(day) - F.lit(_START)
    return years if transform == "year" else years * F.lit(_MONTHS) + F.month(day) - F.lit(1)


def _truncated(column: Column, kind: DataType, width: int) -> Column:
    if isinstance(kind, StringType | BinaryType):
        return F.substring(column, 1, width)
    step = F.lit(width)
    if isinstance(kind, DecimalType):
        step = F.lit(Decimal(width).scaleb(-kind.scale, context=_EXACT))
    return (column - F.pmod(column, step)).cast(kind)


def _micros(column: Column, kind: DataType) -> Column:
    """Microseconds since 1970; times without a zone count as UTC, whatever the session's zone."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    of_day = F.hour(column) * F.lit(3600) + F.minute(column) * F.lit(60)
    seconds = F.extract(F.lit("SECOND"), column)
    days = F.unix_date(F.to_date(column)).cast("long")
    return days * F.lit(_DAY) + of_day.cast("long") * F.lit(_SECOND) + (seconds * F.lit(_SECOND)).cast("long")


def _floor(column: Column, step: int) -> Column:
    """The quotient of two integers, rounded down, also below zero."""
    return F.call_function("div", column - F.pmod(column, F.lit(step)), F.lit(step))


def _text(column: Column, kind: DataType) -> Column:
    """A value as part of a path; a prefix keeps empty strings, which Spark's writer takes for nulls."""
    if isinstance(kind, StringType):
        return F.concat(F.lit("="), column)
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("="), F.hex(column))
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("string")
    if isinstance(kind, TimestampType | TimestampNTZType):
        return _micros(column, kind).cast("string")
    return column.cast("string")


def _decimal(text: str, kind: Any) -> str:
    return f"{Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT):f}"


def _date(text: str, _: DataType) -> str:
    return (_EPOCH + timedelta(days=int(text))).isoformat()


def _time(text: str, kind: DataType) -> str:
    time = datetime(_START, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=int(text))
    return time.replace(tzinfo=time.tzinfo if isinstance(kind, TimestampType) else None).isoformat()


_VALUES: Mapping[type[DataType], Callable[[str, Any], Any]] = {
    BooleanType: lambda text, _: text == "true",
    IntegerType: lambda text, _: int(text),
    LongType: lambda text, _: int(text),
    StringType: lambda text, _: text[1:],
    BinaryType: lambda text, _: text[1:],
    DecimalType: _decimal,
    DateType: _date,
    TimestampType: _time,
    TimestampNTZType: _time,
}
"""How to read the text in a path, by type; floating-point numbers are in no partition, as NaN has no JSON."""


def _bucketed(column: Column, kind: DataType, buckets: int, session: SparkSession) -> Column:
    """The number of a value's bucket, by the hash that Iceberg's format defines; null for null."""
    if isinstance(kind, StringType | BinaryType):
        hashed = _of_bytes(expression_of(column.cast("binary"), session), session)
    elif isinstance(kind, DecimalType):
        # Its unscaled value, in as few bytes as in Java.
        whole = expression_of(column, session)
        for name, result in (
            ("toJavaBigDecimal", _object("java.math.BigDecimal", session)),
            ("unscaledValue", _object("java.math.BigInteger", session)),
            ("toByteArray", _type(BinaryType(), session)),
        ):
            whole = _called(whole, name, result, session)
        hashed = _of_bytes(whole, session)
    else:
        # Spark hashes eight bytes as the format does, given the format's seed; for null it returns the seed.
        number = expression_of(column.cast("long"), session)
        of_number = java_class(session, f"{_EXPRESSIONS}.Murmur3Hash")(as_seq(session, [number]), 0)
        hashed = F.when(column.isNotNull(), column_of(of_number, session))
    return hashed.bitwiseAND(F.lit(_POSITIVE)) % F.lit(buckets)


def _of_bytes(expression: Any, session: SparkSession) -> Column:
    """The hash of bytes; Spark's own treats the last one to three bytes differently."""
    static = java_class(session, f"{_EXPRESSIONS}.objects.StaticInvoke")
    arguments = as_seq(session, [expression])
    owner = java_class(session, "java.lang.Class").forName(_MURMUR)
    result = _type(IntegerType(), session)
    none = as_seq(session, [])
    made = static(owner, result, "hash32x86", arguments, none, True, False, True, nothing(session))
    return column_of(made, session)


def _called(expression: Any, method: str, result: Any, session: SparkSession) -> Any:
    none = as_seq(session, [])
    return java_class(session, f"{_EXPRESSIONS}.objects.Invoke")(
        expression, method, result, none, none, True, False, True
    )


def _object(name: str, session: SparkSession) -> Any:
    found = java_class(session, "java.lang.Class").forName(name)
    return java_class(session, "org.apache.spark.sql.types.ObjectType")(found)


def _type(kind: DataType, session: SparkSession) -> Any:
    return session._jsparkSession.parseDataType(kind.json())
