"""The layout of decoded records: their columns, as of ``load()``, and how a task builds them from messages."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats.debezium import DebeziumJsonDecoder, envelope_ddl, envelope_of
from sparkjet.connectors.kafka.formats.decoding import number_of
from sparkjet.connectors.kafka.formats.malformed import KEY, MALFORMED, SCHEMA_ID, TYPE
from sparkjet.connectors.kafka.formats.settings import OF_AVRO, Formats, Part
from sparkjet.connectors.kafka.options import (
    DEBEZIUM_AVRO,
    DEBEZIUM_JSON,
    FORMAT,
    MODE,
    PERMISSIVE,
    PROTOBUF,
    SCHEMA,
    SOURCE_NAME,
)
from sparkjet.errors import AnalysisError, SourceError, lacking

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.formats.decoding import Decoder, Malformed
    from sparkjet.connectors.kafka.formats.registry import Registered

_MALFORMED = pa.struct(
    [("schemaId", pa.int32()), ("message", pa.string()), ("key", pa.binary()), ("value", pa.binary())]
)


@dataclass(frozen=True)
class Layout:
    """Formats with the schemas that they read with; fixed when the source is loaded, and travels to its tasks.

    Attributes:
        formats: The formats.
        readers: By the column, the schema that it is read with, if there is one.
    """

    formats: Formats
    readers: Mapping[str, Registered | None]

    @staticmethod
    def of(formats: Formats) -> Layout:
        """The layout as of now; asks the registry.

        Raises:
            AnalysisError: The registry lacks a schema.
            SourceError: The registry does not answer.
        """
        return Layout(formats, {part.name: formats.reader(part) for part in formats.parts})

    def columns(self, plain: T.StructType) -> T.StructType | str:
        """The columns of the source.

        Args:
            plain: Those without formats.

        Returns:
            As DDL text where the user gives columns so: only Spark's JVM can read it.
        """
        if not self.formats.parts:
            return plain
        types: dict[str, T.DataType | str] = {field.name: field.dataType for field in plain}
        for part in self.formats.parts:
            types[part.name] = self._type(part)
        if self.formats.permissive:
            types[MALFORMED] = TYPE
        if self.formats.numbered is not None:
            types[SCHEMA_ID] = T.IntegerType()
        if any(isinstance(each, str) for each in types.values()):
            return ", ".join(f"`{name}` {each if isinstance(each, str) else ddl(each)}" for name, each in types.items())
        return T.StructType([T.StructField(name, each) for name, each in types.items() if isinstance(each, T.DataType)])

    def decoders(self, schema: T.StructType) -> Decoders:
        """The decoders of a task.

        Args:
            schema: The columns, as Spark has read them.
        """
        return Decoders(self, schema)

    def decoder(self, part: Part, schema: T.StructType) -> Decoder:
        """The decoder of a part, with the columns as Spark has read them."""
        if part.format == DEBEZIUM_JSON:
            kind = schema[part.name].dataType
            if not isinstance(kind, T.StructType):
                # The user has said what all columns are.
                message = f"schema: leave it out, and give the columns of a row in {part.option(SCHEMA)}."
                raise AnalysisError(message)
            return DebeziumJsonDecoder(kind, part.option(SCHEMA), is_key=part.name == KEY)
        return self._decoder(part)

    def _type(self, part: Part) -> T.DataType | str:
        if part.format == DEBEZIUM_JSON:
            row = part.schema or ""
            return f"struct<{row}>" if part.name == KEY else envelope_ddl(row)
        return self._decoder(part).shape.spark

    def _decoder(self, part: Part) -> Decoder:
        reader, registry = self.readers[part.name], self.formats.registry
        if part.format in OF_AVRO and reader is not None and registry is not None:
            with _needs("fastavro"):
                from sparkjet.connectors.kafka.formats.avro import AvroDecoder  # noqa: PLC0415 - it is optional
            # Keys are rows without an envelope.
            is_envelope = part.format == DEBEZIUM_AVRO and part.name != KEY
            narrowed = partial(envelope_of, option=part.option(FORMAT)) if is_envelope else None
            return AvroDecoder(registry, reader, part.option(SCHEMA), narrowed)
        if part.format == PROTOBUF and reader is not None:
            with _needs("protobuf"):
                from sparkjet.connectors.kafka.formats.protobuf import ProtobufDecoder  # noqa: PLC0415 - as above
            return ProtobufDecoder(registry, reader, part.message, part.option(FORMAT))
        message = f"option: {part.option(FORMAT)}={part.format}: no schema to read with was found."
        raise AnalysisError(message)


@contextmanager
def _needs(package: str) -> Iterator[None]:
    """Say on which machine a package is missing that the driver has."""
    try:
        yield
    except ImportError as error:
        there = f"{SOURCE_NAME}: {sys.executable} on {platform.node()}"
        raise AnalysisError(lacking(there, [error.name or package], {package: package}, "Python")) from error


class Decoders:
    """Decodes the messages of a task; pickled for it, and complete when it is first used."""

    def __init__(self, layout: Layout, schema: T.StructType) -> None:
        self._layout, self._schema = layout, schema
        self._made: dict[str, Decoder] = {}

    def __getstate__(self) -> tuple[Layout, T.StructType]:
        return self._layout, self._schema

    def __setstate__(self, state: tuple[Layout, T.StructType]) -> None:
        self._layout, self._schema = state
        self._made = {}

    def check(self) -> None:
        """Make the decoders now, on the driver, where a wrong schema is the user's error.

        Raises:
            AnalysisError: A schema cannot be read with.
        """
        for part in self._layout.formats.parts:
            self._of(part)

    def columns(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Sequence[Any]
    ) -> dict[str, pa.Array]:
        """The columns of some messages that differ from their bytes.

        Args:
            keys: Their keys.
            values: Their values.
            places: The messages, which say where they are.

        Raises:
            SourceError: One is malformed, and the mode is not permissive; or the registry does not answer.
        """
        columns: dict[str, pa.Array] = {}
        wrong: dict[int, list[tuple[str, Malformed]]] = {}
        bytes_of = {"key": keys, "value": values}
        formats = self._layout.formats
        for part in formats.parts:
            columns[part.name], found = self._of(part).array(bytes_of[part.name])
            for position, each in found.items():
                wrong.setdefault(position, []).append((part.name, each))
        if formats.permissive:
            columns[MALFORMED] = _told(wrong, keys, values)
        elif wrong:
            first = min(wrong)
            raise _undecoded(places[first], wrong[first][0])
        if formats.numbered is not None:
            columns[SCHEMA_ID] = pa.array(map(number_of, bytes_of[formats.numbered]), pa.int32())
        return columns

    def _of(self, part: Part) -> Decoder:
        found = self._made.get(part.name)
        if found is None:
            found = self._made[part.name] = self._layout.decoder(part, self._schema)
        return found


def _told(
    wrong: Mapping[int, Sequence[tuple[str, Malformed]]], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> pa.Array:
    """The column for malformed records, with their bytes."""
    told: list[dict[str, Any] | None] = [None] * len(values)
    for position, some in wrong.items():
        number = next((malformed.schema for _, malformed in some if malformed.schema is not None), None)
        told[position] = {
            "schemaId": number,
            "message": "; ".join(f"{name}: {malformed.message}" for name, malformed in some),
            "key": keys[position],
            "value": values[position],
        }
    return pa.array(told, _MALFORMED)


def ddl(kind: T.DataType) -> str:
    """A type as DDL, whatever its fields are called.

    >>> ddl(T.StructType([T.StructField("a-b", T.ArrayType(T.LongType()))]))
    'struct<`a-b`: array<bigint>>'
    """
    if isinstance(kind, T.StructType):
        names = [each.name.replace("`", "``") for each in kind]
        fields = (f"`{name}`: {ddl(each.dataType)}" for name, each in zip(names, kind, strict=True))
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{ddl(kind.keyType)}, {ddl(kind.valueType)}>"
    return kind.simpleString()


def _undecoded(message: Any, told: tuple[str, Malformed]) -> SourceError:
    part, malformed = told
    number = "" if malformed.schema is None else f" (schema {malformed.schema})"
    return SourceError(
        f"sparkjet-kafka: the record of {message.topic()}-{message.partition()} at {message.offset()} has a {part} "
        f'that cannot be decoded{number}: {malformed.message}. With option("{MODE.name}", "{PERMISSIVE.upper()}") it '
        "comes with a column malformed, and after divert(errors=True) it goes to the dead letters."
    )
