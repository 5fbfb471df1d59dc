"""Protobuf: messages of a descriptor, from a file or a schema registry, with the registry's framing or bare."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf import message as protobuf_message

from sparkjet.connectors.kafka.formats.decoding import Decoder, MalformedError, framed, tell
from sparkjet.connectors.kafka.formats.protobuf_shapes import changed, shape_of
from sparkjet.connectors.kafka.formats.registry import NoSchemaError, Registered, Registry
from sparkjet.errors import AnalysisError

_KNOWN = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_MAIN = "sparkjet-registered.proto"
_LONGEST_NUMBER = 10
"""Bytes of a number of 64 bits."""


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
                f"option: {option}: no descriptor, or not one with {message or 'a message'}: {error}. Give the file "
                "that protoc --include_imports --descriptor_set_out writes, in the option descriptor."
            )
            raise AnalysisError(text) from error
        self.shape = shape_of(self._descriptor, option)
        self._parse = message_factory.GetMessageClass(self._descriptor).FromString
        self._writers: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def decoded(self, message: bytes) -> Any:
        """As above."""
        number, data = None, message
        if self._registry is not None:
            number, rest = framed(message)
            path, data = _path(rest, number)
            self._check(self._registry, number, path)
        try:
            return self._parse(data)
        except protobuf_message.DecodeError as error:
            text = f"no {self._descriptor.full_name}: {error}"
            raise MalformedError(text, number) from None

    def written_by(self, message: bytes | None) -> int | None:
        """As above."""
        return None if message is None or self._registry is None else framed(message)[0]

    def _check(self, registry: Registry, number: int, path: tuple[int, ...]) -> None:
        """Refuse messages of a writer whose fields mean something else."""
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
    """What a file of descriptors has, as a registry would give it.

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
        message = f"it is no serialized descriptor ({error})"
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
    for module in _KNOWN:
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
    """Fields of one number that a writer has with another type, of which some values would be others."""
    if reader.full_name in within:
        return
    for number, field in reader.fields_by_number.items():
        theirs = writer.fields_by_number.get(number)
        if theirs is None:
            continue
        wrong = changed(theirs, field)
        if wrong is not None:
            yield f"{field.full_name} {wrong}"
        elif field.message_type is not None:
            yield from _differences(theirs.message_type, field.message_type, (*within, reader.full_name))
