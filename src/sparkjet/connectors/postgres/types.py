"""Types: which PostgreSQL type stores which Spark type, and how values are converted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import TIMES_OF_DAY

if TYPE_CHECKING:
    from pyspark.sql import Column

_PLAIN: Mapping[type[T.DataType], tuple[str, ...]] = {
    T.BooleanType: ("boolean",),
    T.ByteType: ("smallint", "integer", "bigint", "numeric"),
    T.ShortType: ("smallint", "integer", "bigint", "numeric"),
    T.IntegerType: ("integer", "bigint", "numeric"),
    T.LongType: ("bigint", "numeric"),
    T.FloatType: ("real", "double precision"),
    T.DoubleType: ("double precision",),
    T.StringType: ("text", "character varying"),
    T.CharType: ("text", "character varying"),
    T.VarcharType: ("text", "character varying"),
    T.BinaryType: ("bytea",),
    T.DateType: ("date",),
    T.TimestampType: ("timestamp with time zone",),
    T.TimestampNTZType: ("timestamp without time zone",),
    **dict.fromkeys(TIMES_OF_DAY, ("time without time zone",)),
    T.DayTimeIntervalType: ("interval",),
    T.YearMonthIntervalType: ("interval",),
}
"""PostgreSQL's types by Spark type: the one that is created, then others that store every value unchanged."""

_JSON = (T.StructType, T.MapType, T.ArrayType, T.VariantType)
_LONGEST_NAME = 63
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_NUL = "\\u0000"
# An even number of backslashes before it: otherwise the text itself says \u0000.
_NUL_IN_JSON = r"(?<!\\)(\\\\)*\\u0000"


@dataclass(frozen=True)
class PostgresColumn:
    """A column, as the sink writes it.

    Attributes:
        name: Its name, in Spark and in the table.
        type: Its Spark type.
        accepted: Types of the table's column that store every value unchanged; the first is created.
        is_instant: Whether it is sent as microseconds since 1970.
    """

    name: str
    type: T.DataType
    accepted: tuple[str, ...]
    is_instant: bool

    @property
    def value(self) -> Column:
        """The value, in a form that COPY understands, see :mod:`sparkjet.connectors.postgres.batches`."""
        return _value(F.col(quoted(self.name)), self.type)

    def fits(self, there: str) -> bool:
        """Whether a column of type ``there``, as the server formats it, stores every value unchanged."""
        wider = re.fullmatch(r"numeric\((\d+),(\d+)\)", there)
        if wider and isinstance(self.type, T.DecimalType):
            precision, scale = int(wider[1]), int(wider[2])
            return scale >= self.type.scale and precision - scale >= self.type.precision - self.type.scale
        return there in self.accepted

    @property
    def misfits(self) -> Mapping[str, Column]:
        """Conditions for values that PostgreSQL cannot store, by what is wrong with them."""
        column = F.col(quoted(self.name))
        if isinstance(self.type, T.StringType | T.CharType | T.VarcharType):
            return _text_faults(column)
        if isinstance(self.type, T.DateType | T.TimestampType | T.TimestampNTZType):
            day = column.cast("date")
            beyond = (day < F.lit(_FIRST).cast("date")) | (day > F.lit(_LAST).cast("date"))
            return {f"a time outside {_FIRST} to {_LAST}": beyond}
        if self.accepted == ("jsonb",):
            return {"the character NUL, which PostgreSQL's jsonb cannot store": self.value.rlike(_NUL_IN_JSON)}
        if isinstance(self.type, T.ArrayType) and isinstance(self.type.elementType, T.StringType):
            return _text_faults(self.value)
        return {}


def columns_of(schema: T.StructType) -> list[PostgresColumn]:
    """The columns of some rows."""
    for name in schema.fieldNames():
        if len(name.encode()) > _LONGEST_NAME or "\0" in name or schema.fieldNames().count(name) > 1:
            message = f"postgres: column {name!r} has a name that is not unique, contains NUL or exceeds 63 bytes."
            raise AnalysisError(f"{message} Rename it.")
    return [
        PostgresColumn(field.name, field.dataType, _accepted(field), isinstance(field.dataType, T.TimestampType))
        for field in schema.fields
    ]


def faults(columns: Sequence[PostgresColumn], names: Sequence[str]) -> list[tuple[str, str, Column]]:
    """Column, fault and condition for every value that PostgreSQL would reject; ``names`` must not be null."""
    found = [(column.name, fault, condition) for column in columns for fault, condition in column.misfits.items()]
    null = "a null, which the table does not allow there"
    return found + [(name, null, F.col(quoted(name)).isNull()) for name in names]


def length(names: Sequence[str]) -> Column:
    """The number of bytes that a row has in some columns of text or bytes."""
    each = (F.coalesce(F.octet_length(F.col(quoted(name))), F.lit(0)) for name in names)
    return reduce(add, each, F.lit(0))


def _text_faults(text: Column) -> Mapping[str, Column]:
    return {
        "the character NUL, which PostgreSQL's text cannot store": F.instr(text, "\0") > 0,
        "bytes that are not UTF-8 (see F.make_valid_utf8)": ~F.is_valid_utf8(text),
    }


def _accepted(field: T.StructField) -> tuple[str, ...]:
    found = _types(field.dataType)
    if found is None:
        message = (
            f"postgres: column {field.name!r} has type {field.dataType.simpleString()}, which PostgreSQL lacks. "
            f'Leave it out, or cast it first: withColumn("{field.name}", F.col("{field.name}").cast("string")).'
        )
        raise AnalysisError(message)
    return found


def _types(of: T.DataType) -> tuple[str, ...] | None:
    if isinstance(of, T.UserDefinedType):
        return None
    if isinstance(of, T.DecimalType):
        return (f"numeric({of.precision},{of.scale})", "numeric")
    if isinstance(of, T.ArrayType) and not isinstance(of.elementType, _JSON):
        element = _types(of.elementType)
        return None if element is None else tuple(f"{name}[]" for name in element)
    if isinstance(of, _JSON):
        return ("jsonb",) if all(_types(part) is not None for part in _parts(of)) else None
    return _PLAIN.get(type(of))


def _parts(of: T.DataType) -> list[T.DataType]:
    if isinstance(of, T.StructType):
        return [field.dataType for field in of.fields]
    if isinstance(of, T.MapType):
        return [of.keyType, of.valueType]
    return [of.elementType] if isinstance(of, T.ArrayType) else []


def _value(column: Column, of: T.DataType) -> Column:
    if isinstance(of, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(of, T.ArrayType) and not isinstance(of.elementType, _JSON):
        element = of.elementType
        texts = F.transform(column, lambda item: F.coalesce(_quoted(_text(item, element)), F.lit("NULL")))
        return F.when(column.isNotNull(), F.concat(F.lit("{"), F.array_join(texts, ","), F.lit("}")))
    if isinstance(of, _JSON):
        return F.to_json(column, {"ignoreNullFields": "false"})
    if isinstance(of, (T.BinaryType, *TIMES_OF_DAY, T.DayTimeIntervalType, T.YearMonthIntervalType)):
        return _text(column, of)
    return column


def _text(column: Column, of: T.DataType) -> Column:
    """A value as PostgreSQL reads it, null for null."""
    if isinstance(of, T.BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column))
    if isinstance(of, T.TimestampType):
        return F.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSSXXXXX")
    if isinstance(of, T.DayTimeIntervalType):
        return _interval(column, "day", "hour", "minute", "second")
    if isinstance(of, T.YearMonthIntervalType):
        return _interval(column, "year", "month")
    return column.cast("string")


def _interval(column: Column, *fields: str) -> Column:
    each = (F.extract(F.lit(field), column).cast("string") for field in fields)
    parts = [part for text, field in zip(each, fields, strict=True) for part in (text, F.lit(f" {field} "))]
    return F.concat(*parts)


def _quoted(text: Column) -> Column:
    escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
    return F.concat(F.lit('"'), escaped, F.lit('"'))
