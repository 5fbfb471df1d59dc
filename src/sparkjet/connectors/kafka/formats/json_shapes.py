"""JSON of Kafka Connect: the shape of columns that a user has declared, and what its schemas say that numbers mean."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.semantics import CONNECT_DECIMAL, VARIABLE_DECIMAL, day, unscaled, zoned
from sparkjet.connectors.kafka.formats.shapes import Array, Field, Map, Shape, Struct
from sparkjet.errors import AnalysisError


class Micros(int):
    """Microseconds since 1970: a number of which it is known what it counts."""


_MEANS: Mapping[str, Callable[[Any], Any]] = {
    "io.debezium.time.Timestamp": lambda value: Micros(value * 1_000),
    "org.apache.kafka.connect.data.Timestamp": lambda value: Micros(value * 1_000),
    "io.debezium.time.MicroTimestamp": Micros,
    "io.debezium.time.NanoTimestamp": lambda value: Micros(value // 1_000),
    "io.debezium.time.ZonedTimestamp": lambda value: Micros(zoned(value)),
    VARIABLE_DECIMAL: lambda value: unscaled(value["value"], value["scale"]),
}


def meaning_of(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """What makes of the values of a schema of Connect ones that say what they are; None where nothing is to be done."""
    inner = _meaning_of(schema)
    if inner is None:
        return None
    return lambda value: None if value is None else inner(value)


def _meaning_of(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    name = str(schema.get("name"))
    if name == CONNECT_DECIMAL:
        scale = int(schema["parameters"]["scale"])
        return lambda value: unscaled(value, scale)
    if name in _MEANS:
        return _MEANS[name]
    if schema.get("type") == "struct":
        found = {each["field"]: meant for each in schema["fields"] if (meant := meaning_of(each)) is not None}
        if not found:
            return None
        return lambda value: {**value, **{name: meant(value.get(name)) for name, meant in found.items()}}
    if schema.get("type") == "array":
        item = meaning_of(schema["items"])
        return None if item is None else lambda value: [item(each) for each in value]
    return None


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
    """Values of a shape with parts, which must be of a type of Python."""

    def __init__(self, expected: type, shape: Shape) -> None:
        self._expected, self._shape = expected, shape
        self.spark, self.arrow = shape.spark, shape.arrow

    def array(self, values: Any) -> Any:
        return self._shape.array([None if each is None else _of(self._expected, each) for each in values])


def _of(expected: type, value: Any) -> Any:
    # A text has a length and items too, and true is a number.
    if type(value) is not expected:
        message = f"{value!r} is no {expected.__name__}"
        raise ValueError(message)
    return value


def _number(value: Any) -> float:
    if type(value) is str and value in {"NaN", "Infinity", "-Infinity"}:
        return float(value)
    return float(value if type(value) is int else _of(float, value))


def _text(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(_of(str, value))


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if type(value) is float:
        # The shortest text that is this number, as decimal.handling.mode=double writes it.
        return Decimal(repr(value))
    try:
        return Decimal(value if type(value) is int else _of(str, value))
    except ArithmeticError as error:
        hint = "without its schema, a decimal must be a number or its text: decimal.handling.mode=string"
        message = f"{value!r} is no decimal; {hint}"
        raise ValueError(message) from error


def _moment(value: Any) -> int:
    if isinstance(value, Micros):
        return value
    if type(value) is not str:
        hint = "without its schema nothing says what it counts: declare bigint"
        message = f"{value!r} is no timestamp; {hint}"
        raise ValueError(message)
    return zoned(value if value[10:] and ("Z" in value or "+" in value or "-" in value[10:]) else f"{value}Z")


def _day(value: Any) -> int:
    return day(value) if type(value) is str else int(_of(int, value))


def _whole(value: Any) -> int:
    # What a writer's schema has named counts as a number too, in its own unit no more.
    if isinstance(value, Micros):
        return int(value)
    return int(_of(int, value))


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
