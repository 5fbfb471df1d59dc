"""JSON of Kafka Connect: the shape of the columns that a user has declared, and what numbers mean by its schemas."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.semantics import CONNECT_DECIMAL, VARIABLE_DECIMAL, day, unscaled, zoned
from sparkjet.connectors.kafka.formats.shapes import Array, Field, Map, Shape, Struct
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from typing_extensions import Self


class Number(Decimal):
    """A number with a decimal point, digit by digit: a float keeps 17 digits, a decimal up to 38."""


class Micros(int):
    """Microseconds since 1970: a number whose unit is known.

    Attributes:
        written: The number or text that arrived, for columns that are not timestamps.
    """

    written: Any

    def __new__(cls, count: int, written: Any) -> Self:
        """A count, and the number or text that it came as."""
        made = super().__new__(cls, count)
        made.written = written
        return made


_MEANS: Mapping[str, Callable[[Any], Any]] = {
    "io.debezium.time.Timestamp": lambda value: Micros(value * 1_000, value),
    "org.apache.kafka.connect.data.Timestamp": lambda value: Micros(value * 1_000, value),
    "io.debezium.time.MicroTimestamp": lambda value: Micros(value, value),
    "io.debezium.time.NanoTimestamp": lambda value: Micros(value // 1_000, value),
    "io.debezium.time.ZonedTimestamp": lambda value: Micros(zoned(value), value),
    VARIABLE_DECIMAL: lambda value: unscaled(value["value"], value["scale"]),
}


def meaning_of(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """A function that makes values of a Connect schema say what they mean; None if there is nothing to do."""
    inner = _meaning_of(schema)
    if inner is None:
        return None
    return lambda value: None if value is None else inner(value)


def _meaning_of(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    name = str(schema.get("name"))
    if name == CONNECT_DECIMAL:
        scale = int(schema["parameters"]["scale"])
        # With decimal.format=NUMERIC it is a number.
        return lambda value: unscaled(value, scale) if isinstance(value, str) else _decimal(value)
    if name in _MEANS:
        return _MEANS[name]
    if schema.get("type") == "struct":
        found = {each["field"]: meant for each in schema["fields"] if (meant := meaning_of(each)) is not None}
        if not found:
            return None
        return lambda value: {**value, **{name: meant(value.get(name)) for name, meant in found.items()}}
    each_of = {"array": "items", "map": "values"}.get(str(schema.get("type")))
    each = None if each_of is None else meaning_of(schema[each_of])
    return None if each is None else lambda value: _each(each, value)


def _each(means: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {name: means(item) for name, item in value.items()}
    return [means(item) for item in value]


def shape_of(kind: T.DataType, option: str) -> Shape:
    """The shape of declared columns, for values of JSON.

    Raises:
        AnalysisError: JSON has no values of a type.
    """
    if isinstance(kind, T.StructType):
        for field in kind:
            if not field.nullable:
                message = (
                    f"option: {option}: leave NOT NULL out of {field.name}. A row that was there before a column was "
                    "added lacks it."
                )
                raise AnalysisError(message)
        fields = [Field(field.name, shape_of(field.dataType, option)) for field in kind]
        return Struct(fields, lambda value, name: _of(dict, value).get(name))
    if isinstance(kind, T.ArrayType):
        return _Checked(list, Array(shape_of(kind.elementType, option)))
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return _Checked(dict, Map(shapes.STRING, shape_of(kind.valueType, option)))
    if isinstance(kind, T.DecimalType):
        return shapes.decimal(kind.precision, kind.scale).by(_decimal)
    for known, shape in _SCALARS.items():
        if type(kind) is known:
            return shape
    message = f"option: {option}: no value of JSON is {kind.simpleString()}. Take bigint, double, string or the like."
    raise AnalysisError(message)


class _Checked(Shape):
    """Values of a shape with parts, which must have a certain Python type."""

    def __init__(self, expected: type, shape: Shape) -> None:
        self._expected, self._shape = expected, shape
        self.spark, self.arrow = shape.spark, shape.arrow

    def array(self, values: Any) -> Any:
        return self._shape.array([None if each is None else _of(self._expected, each) for each in values])


def _of(expected: type, value: Any) -> Any:
    # A text has a length and items too, and true is a number.
    if type(value) is not expected:
        message = f"{value!r} is not of type {expected.__name__}"
        raise ValueError(message)
    return value


def _number(value: Any) -> float:
    if type(value) is str and value in {"NaN", "Infinity", "-Infinity"}:
        return float(value)
    return float(value if type(value) in (int, Number) else _of(float, value))


def _text(value: Any) -> str:
    if type(value) is Decimal:
        return f"{value:f}"
    return str(_of(str, value.written if isinstance(value, Micros) else value))


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    try:
        return Decimal(value if type(value) is int else _of(str, value))
    except ArithmeticError as error:
        hint = "without its schema, a decimal must be a number or its text: decimal.handling.mode=string"
        message = f"{value!r} is not a decimal; {hint}"
        raise ValueError(message) from error


def _moment(value: Any) -> int:
    if isinstance(value, Micros):
        return value
    if type(value) is not str:
        hint = "without its schema nothing says what it counts: declare bigint"
        message = f"{value!r} is not a timestamp; {hint}"
        raise ValueError(message)
    return zoned(value if value[10:] and ("Z" in value or "+" in value or "-" in value[10:]) else f"{value}Z")


def _day(value: Any) -> int:
    return day(value) if type(value) is str else int(_of(int, value))


def _whole(value: Any) -> int:
    return int(_of(int, value.written if isinstance(value, Micros) else value))


_SCALARS: Mapping[type, Shape] = {
    T.BooleanType: shapes.BOOLEAN.by(lambda value: _of(bool, value)),
    T.IntegerType: shapes.INT.by(_whole),
    T.LongType: shapes.LONG.by(_whole),
    T.FloatType: shapes.FLOAT.by(_number),
    T.DoubleType: shapes.DOUBLE.by(_number),
    T.StringType: shapes.STRING.by(_text),
    T.BinaryType: shapes.BINARY.by(lambda value: base64.b64decode(_of(str, value), validate=True)),
    T.DateType: shapes.DATE.by(_day),
    T.TimestampType: shapes.TIMESTAMP.by(_moment),
    T.TimestampNTZType: shapes.TIMESTAMP_NTZ.by(_moment),
}
