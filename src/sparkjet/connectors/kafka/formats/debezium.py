"""Debezium's envelopes: what was done to a row, and the row before and after; from JSON, or as Avro decodes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import types as T

from sparkjet.connectors.kafka.formats import shapes
from sparkjet.connectors.kafka.formats.decoding import Decoder, MalformedError
from sparkjet.connectors.kafka.formats.json_shapes import Number, meaning_of, shape_of
from sparkjet.connectors.kafka.formats.semantics import MILLISECONDS
from sparkjet.connectors.kafka.formats.shapes import Field, Shape, Struct
from sparkjet.errors import AnalysisError

_SOURCE = ("connector", "name", "db", "schema", "table", "snapshot")
"""The fields of ``source`` that all connectors write; null where one has none, such as a schema in MySQL."""
_JSON = json.JSONDecoder(parse_float=Number)
_WITHOUT_ROW = {"t", "m"}
"""The operations of a truncated table and of a message in PostgreSQL's log, which have no row."""
_BEGINS = ('{"schema":', '"payload":')


def envelope_ddl(row: str) -> str:
    """The type of an envelope, as DDL.

    >>> envelope_ddl("id bigint")[:51]
    'struct<op: string, before: struct<id bigint>, after'
    """
    source = ", ".join(f"{name}: string" for name in _SOURCE)
    return (
        f"struct<op: string, before: struct<{row}>, after: struct<{row}>, source: struct<{source}, ts_ms: timestamp>, "
        "ts_ms: timestamp>"
    )


def envelope(before: Shape, after: Shape) -> Struct:
    """The shape of an envelope, whatever else it has."""
    source = Struct([*(Field(name, shapes.STRING) for name in _SOURCE), Field("ts_ms", MILLISECONDS)], dict.get)
    fields = Field("op", shapes.STRING), Field("before", before), Field("after", after), Field("source", source)
    return Struct([*fields, Field("ts_ms", MILLISECONDS)], dict.get)


def envelope_of(whole: Shape, option: str) -> Struct:
    """The same for Avro envelopes.

    Args:
        whole: The shape of the reader's schema.
        option: The option of the format, for errors.

    Raises:
        AnalysisError: They are none.
    """
    rows = {each.name: each.shape for each in whole.parts()}
    if not {"op", "before", "after", "source"} <= rows.keys():
        message = (
            f"option: {option}=debezium-avro: the schema is not that of an envelope: it lacks op, before or after."
        )
        raise AnalysisError(message)
    return envelope(rows["before"], rows["after"])


class DebeziumJsonDecoder(Decoder):
    """Decodes JSON of Kafka Connect's converter, with its schemas or without.

    Args:
        kind: The type of the column, of which the row's was given by the user.
        option: The option of the row's columns, for errors.
        is_key: Whether it is of keys, which are rows without an envelope.

    Raises:
        AnalysisError: A column has a type that JSON has no values of.
    """

    def __init__(self, kind: T.StructType, option: str, *, is_key: bool) -> None:
        self._is_key = is_key
        if is_key:
            self.shape = shape_of(kind, option)
        else:
            row = shape_of(kind["before"].dataType, option)
            self.shape = envelope(row, row)
        self._prefix = ""
        self._means: Callable[[Any], Any] = _unchanged
        self._scan = _JSON.raw_decode

    def decoded(self, message: bytes) -> Any:
        """See :meth:`Decoder.decoded`."""
        try:
            text = message.decode()
            if self._prefix and text.startswith(self._prefix):
                # The same schema again, which is most of the message and need not be parsed.
                begins = len(text) - len(text[len(self._prefix) :].lstrip())
                payload, end = self._scan(text, begins)
                if text[end:].strip() != "}":
                    raise MalformedError("it is not JSON: something follows the payload")
                means: Callable[[Any], Any] = self._means
            else:
                payload, means = self._parsed(text)
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            text = f"it is not JSON: {error}"
            raise MalformedError(text) from None
        if payload is None:
            return None
        if not isinstance(payload, dict):
            raise MalformedError("it is not a row" if self._is_key else "it is not an envelope")
        if not self._is_key:
            _check(payload)
        try:
            return means(payload)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            text = f"a value is not what its schema says: {type(error).__name__}: {error}"
            raise MalformedError(text) from None

    def _parsed(self, text: str) -> tuple[Any, Callable[[Any], Any]]:
        whole = _JSON.decode(text)
        if not isinstance(whole, dict) or whole.keys() != {"schema", "payload"}:
            return whole, _unchanged
        schema = whole["schema"]
        means = (meaning_of(schema) if isinstance(schema, Mapping) else None) or _unchanged
        if text.startswith(_BEGINS[0] + "{"):
            _, end = self._scan(text, len(_BEGINS[0]))
            prefix = f"{text[:end]},{_BEGINS[1]}"
            if text.startswith(prefix):
                self._prefix, self._means = prefix, means
        return whole["payload"], means


def _check(payload: Mapping[str, Any]) -> None:
    """Refuse anything but an envelope, such as the row itself, which may have a column op."""
    op = payload.get("op")
    if not isinstance(op, str):
        raise MalformedError("it is not an envelope: it has no op")
    if op not in _WITHOUT_ROW and not payload.keys() & {"before", "after"}:
        raise MalformedError("it is not an envelope: it has neither before nor after")


def _unchanged(payload: Any) -> Any:
    return payload
