"""Deliveries, read from a connection's bytes many at once: pika takes longer to make objects of them than a broker."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from pika import spec

_METHOD = struct.Struct(">BHLLB")
"""A frame's kind, channel and size; the method, and the length of the consumer's tag."""
_TAG = struct.Struct(">QB")
"""The delivery's number, and whether it may be a redelivery."""
_HEADER = struct.Struct(">BHLHHQH")
"""A frame's kind, channel and size; class, weight and size of the body; which properties there are."""
_BODY = struct.Struct(">BHL")
_TIME = struct.Struct(">Q")
_START, _CONTENT = 7, 12
"""Bytes of a frame before its content, and of a header's content before the properties."""
_OF_METHOD, _OF_HEADER, _OF_BODY, _END = spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY, spec.FRAME_END
_DELIVER = spec.Basic.Deliver.INDEX
_KNOWN = spec.BasicProperties
_SHORT_TEXT, _OCTET = 0, 1
_LAYOUT = (
    (_KNOWN.FLAG_CONTENT_TYPE, _SHORT_TEXT, 0),
    (_KNOWN.FLAG_CONTENT_ENCODING, _SHORT_TEXT, None),
    (_KNOWN.FLAG_DELIVERY_MODE, _OCTET, None),
    (_KNOWN.FLAG_PRIORITY, _OCTET, None),
    (_KNOWN.FLAG_CORRELATION_ID, _SHORT_TEXT, 1),
    (_KNOWN.FLAG_REPLY_TO, _SHORT_TEXT, 2),
    (_KNOWN.FLAG_EXPIRATION, _SHORT_TEXT, None),
    (_KNOWN.FLAG_MESSAGE_ID, _SHORT_TEXT, 3),
    (_KNOWN.FLAG_TIMESTAMP, _TIME.size, 4),
    (_KNOWN.FLAG_TYPE, _SHORT_TEXT, 5),
)
"""The properties in the order in which they are sent, but for headers: text or a number of bytes, and their place in
:class:`Properties`. Those behind them are not read."""
_MORE = 1
"""The flag of further flags, of which AMQP has none."""
_MOST_ROUTES = 10_000


class Delivery(NamedTuple):
    """A delivery, with the names of pika's ``Basic.Deliver``."""

    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str


class Properties(NamedTuple):
    """The properties of a message without headers, those that become columns, with pika's names."""

    content_type: str | None
    correlation_id: str | None
    reply_to: str | None
    message_id: str | None
    timestamp: int | None
    type: str | None
    headers: None = None


Accept = Callable[[Any, Any, bytes], None]
"""Takes a delivery, its properties and its body: these here, or pika's."""


class Deliveries:
    """Reads the deliveries that have arrived as a whole, and leaves everything else to pika, malformed frames too.

    Attributes:
        consumers: What takes the deliveries of each consumer, by its tag.
    """

    def __init__(self) -> None:
        self.consumers: dict[str, Accept] = {}
        self._routes: dict[bytes, tuple[str, str]] = {}

    def read(self, data: bytes) -> int:
        """Hand on the deliveries at the start of the data; returns the number of bytes that they took."""
        start, end = 0, len(data)
        while True:
            try:
                found = self._delivery(data, start, end)
            except (struct.error, IndexError, UnicodeDecodeError):
                # It has not arrived as a whole; or has text that is not UTF-8, which pika has its own way with.
                return start
            if found is None:
                return start
            accept, delivery, properties, body, start = found
            accept(delivery, properties, body)

    def _delivery(self, data: bytes, start: int, end: int) -> tuple[Accept, Delivery, Any, bytes, int] | None:
        """The delivery at a position, and where it ends; None if something else is there."""
        kind, channel, size, method, length = _METHOD.unpack_from(data, start)
        if kind != _OF_METHOD or method != _DELIVER:
            return None
        header = start + _START + size + 1
        kind, of, size, _, _, length_of_body, flags = _HEADER.unpack_from(data, header)
        body = header + _START + size + 1
        # If it is larger than a frame, this is not where it ends.
        stop = body + _START + length_of_body + 1 if length_of_body else body
        is_whole = stop <= end and kind == _OF_HEADER and of == channel and not flags & _MORE
        if not is_whole or not data[header - 1] == data[body - 1] == data[stop - 1] == _END:
            return None
        if length_of_body and _BODY.unpack_from(data, body) != (_OF_BODY, channel, length_of_body):
            return None
        tag = start + _METHOD.size
        consumer = data[tag : tag + length].decode()
        accept = self.consumers.get(consumer)
        if accept is None:
            return None
        number, bits = _TAG.unpack_from(data, tag + length)
        exchange, key = self._route(data[tag + length + _TAG.size : header - 1])
        properties: Any
        if flags & _KNOWN.FLAG_HEADERS:
            try:
                properties = _KNOWN().decode(data, header + _START + _CONTENT)
            except Exception:  # noqa: BLE001 - of any type: the connection reads it without its headers
                return None
        else:
            properties = _properties(data, header + _HEADER.size, flags)
        content = data[body + _START : stop - 1] if length_of_body else b""
        return accept, Delivery(consumer, number, bool(bits & 1), exchange, key), properties, content, stop

    def _route(self, content: bytes) -> tuple[str, str]:
        """Exchange and routing key, of which there are few."""
        found = self._routes.get(content)
        if found is None:
            exchange, at = _text(content, 0)
            key, _ = _text(content, at)
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            found = self._routes[content] = exchange, key
        return found


@functools.cache
def _layout(flags: int) -> tuple[tuple[int, int | None], ...]:
    return tuple((kind, place) for flag, kind, place in _LAYOUT if flags & flag)


def _properties(data: bytes, at: int, flags: int) -> Properties:
    found: list[Any] = [None] * len(Properties._fields)
    for kind, place in _layout(flags):
        if kind == _SHORT_TEXT:
            text, at = _text(data, at)
            if place is not None:
                found[place] = text
        else:
            if place is not None:
                (found[place],) = _TIME.unpack_from(data, at)
            at += kind
    return Properties(*found)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end
