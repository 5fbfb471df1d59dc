"""Protobuf's types: the shape of a message, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.shapes import Array, Field, Map, Scalar, Shape, Struct
from sparkjet.errors import AnalysisError

_DIGITS = 20
_KINDS = {
    value: name[len("TYPE_") :].lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_") and isinstance(value, int)
}
_SCALARS: Mapping[str, Shape] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), shapes.INT),
    # No number of theirs is negative, so the next wider type holds them all.
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), shapes.LONG),
    **dict.fromkeys(("uint64", "fixed64"), shapes.decimal(_DIGITS, 0)),
    "bool": shapes.BOOLEAN,
    "float": shapes.FLOAT,
    "double": shapes.DOUBLE,
    "string": shapes.STRING,
    "bytes": shapes.BINARY,
}
_WIRE = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "a varint"),
    **dict.fromkeys(("sint32", "sint64"), "a zigzag varint"),
    **dict.fromkeys(("fixed32", "sfixed32"), "a fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "a fixed64"),
    **dict.fromkeys(("string", "bytes"), "a string or bytes"),
}
"""Types that Protobuf lets a field change between; others are only alike with themselves."""
_RANGES: Mapping[str, tuple[int, int]] = {
    "bool": (0, 1),
    **dict.fromkeys(("int32", "enum", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}
"""What each holds: Protobuf cuts off what is more, without an error."""
_WRAPPERS = "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"
_DURATION = Scalar(
    T.DayTimeIntervalType(), pa.duration("us"), lambda value: value.seconds * 10**6 + value.nanos // 1000
)
_TIMESTAMP = shapes.TIMESTAMP.by(lambda value: value.seconds * 10**6 + value.nanos // 1000)
_JSON = shapes.STRING.by(lambda value: json_format.MessageToJson(value, indent=None))
_KNOWN: Mapping[str, Shape] = {
    "google.protobuf.Timestamp": _TIMESTAMP,
    "google.protobuf.Duration": _DURATION,
    # Values of any type, one in another: no type of Spark.
    **dict.fromkeys((f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")), _JSON),
}


def shape_of(message: Any, option: str, within: tuple[str, ...] = ()) -> Struct:
    """The shape of a message.

    Raises:
        AnalysisError: It contains itself.
    """
    name = message.full_name
    if name in within:
        text = (
            f"option: {option}: {name} contains itself, which no type of Spark can. Give a descriptor without that "
            "field: what a reader does not know is ignored."
        )
        raise AnalysisError(text)
    fields = [Field(each.name, _field(each, option, (*within, name))) for each in message.fields]
    get: dict[str, Callable[[Any], Any]] = {each.name: _getter(each) for each in message.fields}
    return Struct(fields, lambda value, field: get[field](value))


def changed(theirs: Any, field: Any) -> str | None:
    """How a writer's field differs from a reader's, if values of it would be read as others; parts are not compared."""
    if theirs.is_repeated and not field.is_repeated:
        return "is repeated, and is read as one value"
    wrote, reads = _KINDS[theirs.type], _KINDS[field.type]
    on_wire, wanted = (_WIRE.get(kind, f"a {kind}") for kind in (wrote, reads))
    if on_wire != wanted:
        return f"is {on_wire}, and is read as {wanted}"
    if wrote in _RANGES and not (_RANGES[reads][0] <= _RANGES[wrote][0] and _RANGES[wrote][1] <= _RANGES[reads][1]):
        return f"is of type {wrote}, and is read as {reads}, which has not all of its numbers"
    if field.message_type is not None:
        names = [each.message_type.full_name for each in (theirs, field)]
        if names[0] != names[1] and any(name.startswith("google.protobuf.") for name in names):
            return f"is a {names[0]}, and is read as a {names[1]}"
    return None


def _field(field: Any, option: str, within: tuple[str, ...]) -> Shape:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return Map(_one(key, option, within), _one(value, option, within))
    shape = _one(field, option, within)
    return Array(shape) if field.is_repeated else shape


def _one(field: Any, option: str, within: tuple[str, ...]) -> Shape:
    kind = _KINDS[field.type]
    if kind == "enum":
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # One that is newer than the descriptor has no name yet.
        return shapes.STRING.by(lambda number: names.get(number, str(number)))
    if kind not in {"message", "group"}:
        return _SCALARS[kind]
    name = field.message_type.full_name
    if name in _KNOWN:
        return _KNOWN[name]
    if _is_wrapper(name):
        inner = _one(field.message_type.fields_by_name["value"], option, within)
        return _Wrapped(inner)
    return shape_of(field.message_type, option, within)


class _Wrapped(Shape):
    """Values of a message that is there to tell a value from none."""

    def __init__(self, inner: Shape) -> None:
        self._inner = inner
        self.spark, self.arrow = inner.spark, inner.arrow

    def array(self, values: Any) -> Any:
        return self._inner.array([None if value is None else value.value for value in values])


def _getter(field: Any) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        # Copied: reading a key of a map of messages would add it.
        return lambda message: dict(getattr(message, name).items())
    if field.is_repeated or not field.has_presence:
        return lambda message: getattr(message, name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_wrapper(name: str) -> bool:
    return name.startswith("google.protobuf.") and name[len("google.protobuf.") : -len("Value")] in _WRAPPERS
