"""Avro with a schema registry: each record is read with the schema that wrote it, resolved to the query's own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro

from sparkjet.connectors.kafka.formats.avro_shapes import Schema, complete, differences, shape_of, unmeant
from sparkjet.connectors.kafka.formats.decoding import Decoder, MalformedError, framed, tell
from sparkjet.connectors.kafka.formats.registry import NoSchemaError, Registered, Registry
from sparkjet.connectors.kafka.formats.shapes import Shape
from sparkjet.errors import AnalysisError


class AvroDecoder(Decoder):
    """Decodes Avro in Confluent's framing.

    A field that the reader's schema lacks is ignored; one that the writer's lacks has the reader's default. Where the
    two cannot be resolved, or numbers mean something else, the records of that writer are malformed.

    Args:
        registry: Where the schemas of writers are.
        reader: The query's own.
        option: Its option, for errors.
        narrowed: What is taken of it, of its shape.
    """

    def __init__(
        self, registry: Registry, reader: Registered, option: str, narrowed: Callable[[Shape], Shape] | None = None
    ) -> None:
        self._registry = registry
        self._meant, self._reader = parsed(reader, option)
        whole = shape_of(self._meant, option)
        self.shape = whole if narrowed is None else narrowed(whole)
        self._writers: dict[int, Callable[[bytes], Any] | str] = {}

    def decoded(self, message: bytes) -> Any:
        """See :meth:`Decoder.decoded`."""
        number, data = framed(message)
        found = self._writers.get(number)
        if found is None:
            found = self._writers[number] = self._writer(number)
        if isinstance(found, str):
            raise MalformedError(found, number)
        return found(data)

    def written_by(self, message: bytes | None) -> int | None:
        """See :meth:`Decoder.written_by`."""
        return None if message is None else framed(message)[0]

    def _writer(self, number: int) -> Callable[[bytes], Any] | str:
        """A function that reads the records of a schema, or why none can."""
        try:
            registered = self._registry.schema(number)
        except NoSchemaError as error:
            return f"{error}"
        if registered.kind != "AVRO":
            return f"its schema is one of {registered.kind}"
        try:
            meant, writer = parsed(registered, "the registry")
        except AnalysisError as error:
            return f"its schema cannot be read: {error}"
        for difference in differences(meant, self._meant):
            return f"its schema differs: {difference}"
        ignored = _fields(meant.root) - _fields(self._meant.root)
        if ignored:
            tell(f"sparkjet-kafka: fields of schema {number} that are not read: {', '.join(sorted(ignored))}")
        reader, read = self._reader, fastavro.schemaless_reader

        def decoded(data: bytes) -> Any:
            stream = io.BytesIO(data)
            try:
                value = read(stream, writer, reader, return_named_type=True)
            except Exception as error:  # noqa: BLE001 - see below
                # Whatever it is: these bytes will not be read by another attempt, and nothing else is done here.
                what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise MalformedError(what, number) from None
            left = len(data) - stream.tell()
            if left:
                text = f"{left} bytes are left after it"
                raise MalformedError(text, number)
            return value

        return decoded


def parsed(registered: Registered, option: str) -> tuple[Schema, Any]:
    """A schema with the meaning of its types, and the same without it, as fastavro reads with it.

    Raises:
        AnalysisError: It is not an Avro schema.
    """
    try:
        meant: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for _, text in registered.references:
            each = json.loads(text)
            fastavro.parse_schema(each, named_schemas=meant)
            fastavro.parse_schema(unmeant(each), named_schemas=plain)
        root = json.loads(registered.text)
        whole = fastavro.parse_schema(root, named_schemas=meant)
        read = fastavro.parse_schema(unmeant(root), named_schemas=plain)
        complete(Schema(read, plain))
        return Schema(whole, meant), read
    except (
        ValueError,
        KeyError,
        TypeError,
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
    ) as error:
        message = f"option: {option}: not an Avro schema: {type(error).__name__}: {error}"
        raise AnalysisError(message) from error


def _fields(root: Any) -> set[str]:
    return {each["name"] for each in root.get("fields", ())} if isinstance(root, dict) else set()
