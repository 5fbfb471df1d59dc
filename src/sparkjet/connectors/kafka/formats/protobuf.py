"""Protobuf: messages of a descriptor, from a file or a schema registry, with the registry's framing or bare."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf import message as protobuf_message
from google.protobuf.descriptor import FieldDescriptor
from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.decoding import Decoder, MalformedError, framed, tell
from sparkjet.connectors.kafka.formats.registry import NoSchemaError, Registered, Registry
from sparkjet.connectors.kafka.formats.shapes import Array, Field, Map, Scalar, Shape, Struct
from sparkjet.errors import AnalysisError

_FILES = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_MAIN = "sparkjet-registered.proto"
_LONGEST_NUMBER = 10
"""Bytes of a number of 64 bits."""
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
"""The encoding of each type: a field may change between types of one encoding; any other is only like itself."""
_RANGES: Mapping[str, tuple[int, int]] = {
    "bool": (0, 1),
    **dict.fromkeys(("int32", "enum", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}
"""The range of each type: Protobuf truncates larger numbers, without an error."""
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


class ProtobufDecoder(Decoder):
    """Decodes messages of Protobuf.

    Fields that the reader's message lacks are ignored, and those that the writer's lacks have their default, or null
    where their presence is known. Where the writer's schema is known, a field of another type makes its records
    malformed: Protobuf itself would take it for one that is not there.

    Args:
        registry: Where the schemas of writers are; None if messages are not framed.
        reader: What to read with: descriptors, in base 64.
        message: Full name of the message; None for the first.
        option: The option of the format, for errors.
    """

    def __init__(self, registry: Registry | None, reader: Registered, message: str | None, option: str) -> None:
        self._registry = registry
        try:
            files = _files(reader)
            self._descriptor = _message(_pool(files), files[-1], message)
        except (ValueError, KeyError, TypeError, protobuf_message.DecodeError) as error:
            text = (
                f"option: {option}: not a descriptor, or none with {message or 'a message'}: {error}. Give the file "
                "that protoc --include_imports --descriptor_set_out writes, in the option descriptor."
            )
            raise AnalysisError(text) from error
        self.shape = _shape_of(self._descriptor, option)
        self._parse = message_factory.GetMessageClass(self._descriptor).FromString
        self._writers: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def decoded(self, message: bytes) -> Any:
        """See :meth:`Decoder.decoded`."""
        number, data = None, message
        if self._registry is not None:
            number, rest = framed(message)
            path, data = _path(rest, number)
            self._check(self._registry, number, path)
        try:
            return self._parse(data)
        except protobuf_message.DecodeError as error:
            text = f"not a {self._descriptor.full_name}: {error}"
            raise MalformedError(text, number) from None

    def written_by(self, message: bytes | None) -> int | None:
        """See :meth:`Decoder.written_by`."""
        return None if message is None or self._registry is None else framed(message)[0]

    def _check(self, registry: Registry, number: int, path: tuple[int, ...]) -> None:
        """Refuse messages of a writer that means something else by its fields."""
        key = (number, path)
        if key not in self._writers:
            self._writers[key] = self._wrong(registry, number, path)
        wrong = self._writers[key]
        if wrong is not None:
            raise MalformedError(wrong, number)

    def _wrong(self, registry: Registry, number: int, path: tuple[int, ...]) -> str | None:
        try:
            registered = registry.schema(number, "serialized")
        except NoSchemaError as error:
            return str(error)
        if registered.kind != "PROTOBUF":
            return f"its schema is one of {registered.kind}"
        try:
            files = _files(registered)
            file = _pool(files).FindFileByName(files[-1].name)
        except (ValueError, KeyError, TypeError, protobuf_message.DecodeError) as error:
            # A registry that has only the text of schemas: records are read all the same.
            tell(f"sparkjet-kafka: schema {number} cannot be compared with the query's: {error}")
            return None
        try:
            writer = _at(file, path)
        except IndexError:
            return f"its schema has no message at position {path}"
        if writer.full_name != self._descriptor.full_name:
            return f"it is a {writer.full_name}, not a {self._descriptor.full_name}"
        return next((f"its schema differs: {each}" for each in _differences(writer, self._descriptor, ())), None)


def descriptors_of(path: str, option: str) -> Registered:
    """The descriptors in a file, as a registry would give them.

    Raises:
        AnalysisError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as Spark's own option, relative to where the driver runs
            data = file.read()
    except OSError as error:
        message = f"option: {option}: {path} cannot be read: {error.strerror or error}."
        raise AnalysisError(message) from error
    return Registered(base64.b64encode(data).decode(), "DESCRIPTORS", 0)


def _files(registered: Registered) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of a schema, the one with its messages last."""
    try:
        data = base64.b64decode(registered.text, validate=True)
    except binascii.Error as error:
        message = f"it is not a serialized descriptor ({error})"
        raise ValueError(message) from error
    if registered.kind == "DESCRIPTORS":
        return [*descriptor_pb2.FileDescriptorSet.FromString(data).file]
    files = []
    for name, text in registered.references:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        file.name = name
        files.append(file)
    main = descriptor_pb2.FileDescriptorProto.FromString(data)
    main.name = _MAIN
    return [*files, main]


def _pool(files: list[descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    given = {file.name for file in files}
    for module in _FILES:
        # Registries and many files leave them out.
        if module.DESCRIPTOR.name not in given:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _message(pool: descriptor_pool.DescriptorPool, main: descriptor_pb2.FileDescriptorProto, name: str | None) -> Any:
    if name is not None:
        return pool.FindMessageTypeByName(name)
    if not main.message_type:
        message = f"{main.name} has no message"
        raise ValueError(message)
    return _at(pool.FindFileByName(main.name), (0,))


def _at(file: Any, path: tuple[int, ...]) -> Any:
    """The message at a path of positions."""
    found = [*file.message_types_by_name.values()][path[0]]
    for position in path[1:]:
        found = found.nested_types[position]
    return found


def _path(data: bytes, number: int) -> tuple[tuple[int, ...], bytes]:
    """The positions that say which message of a file it is, and the message.

    >>> _path(bytes([0]) + b"rest", 1), _path(bytes([4, 2, 0]) + b"rest", 1)
    (((0,), b'rest'), ((1, 0), b'rest'))
    """
    numbers: list[int] = []
    at, wanted = 0, 1
    while len(numbers) < wanted:
        value = shift = 0
        while True:
            if at >= len(data) or shift >= 7 * _LONGEST_NUMBER:
                text = "it ends where the position of its message should be"
                raise MalformedError(text, number)
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                break
        if value & 1:
            # Zigzag: an odd number is a negative one, which Python would count from the end.
            text = "the position of its message is negative"
            raise MalformedError(text, number)
        numbers.append(value >> 1)
        if len(numbers) == 1:
            wanted = 1 + min(numbers[0], len(data))
    return tuple(numbers[1:]) or (0,), data[at:]


def _differences(writer: Any, reader: Any, within: tuple[str, ...]) -> Iterator[str]:
    """Fields with one number whose types differ so that some of the writer's values would be read as others."""
    if reader.full_name in within:
        return
    for number, field in reader.fields_by_number.items():
        theirs = writer.fields_by_number.get(number)
        if theirs is None:
            continue
        wrong = _changed(theirs, field)
        if wrong is not None:
            yield f"{field.full_name} {wrong}"
        elif field.message_type is not None:
            yield from _differences(theirs.message_type, field.message_type, (*within, reader.full_name))


def _shape_of(message: Any, option: str, within: tuple[str, ...] = ()) -> Struct:
    """The shape of a message; refuses one that contains itself."""
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


def _changed(theirs: Any, field: Any) -> str | None:
    """How a writer's field differs from a reader's, if some of its values would be read as others; not its parts."""
    if theirs.is_repeated and not field.is_repeated:
        return "is repeated, and is read as one value"
    wrote, reads = _KINDS[theirs.type], _KINDS[field.type]
    on_wire, wanted = (_WIRE.get(kind, f"a {kind}") for kind in (wrote, reads))
    if on_wire != wanted:
        return f"is {on_wire}, and is read as {wanted}"
    if wrote in _RANGES and not (_RANGES[reads][0] <= _RANGES[wrote][0] and _RANGES[wrote][1] <= _RANGES[reads][1]):
        return f"is of type {wrote}, and is read as {reads}, which does not have all of its numbers"
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
    return _shape_of(field.message_type, option, within)


class _Wrapped(Shape):
    """Values of a wrapper message, which tells a value from none."""

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
