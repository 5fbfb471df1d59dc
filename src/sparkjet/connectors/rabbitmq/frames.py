"""pika's connection, which reads deliveries faster, and survives a message whose headers it cannot decode."""

from __future__ import annotations

import struct
from typing import Any

import pika
from pika import frame, spec
from pika.exceptions import InvalidFrameError

from sparkjet.connectors.rabbitmq.deliveries import Deliveries

_FRAME, _CONTENT, _FLAGS, _LENGTH = (
    struct.Struct(">BHL"),
    struct.Struct(">HHQ"),
    struct.Struct(">H"),
    struct.Struct(">I"),
)
_OF_CONTENT = (frame.Header, frame.Body)
_BEFORE = (spec.BasicProperties.FLAG_CONTENT_TYPE, spec.BasicProperties.FLAG_CONTENT_ENCODING)
"""Properties, short strings, that are sent before the headers."""
_AT_ONCE = 1 << 16
"""Bytes that are taken from the socket at once; pika takes 4,096, which are a dozen messages."""


class UnreadableProperties(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """The properties of a message without its headers, and why those cannot be decoded.

    Attributes:
        reason: pika's message.
    """

    reason: Exception


class TolerantConnection(pika.SelectConnection):  # type: ignore[misc]  # as above
    """Delivers a message whose headers pika cannot decode, such as a time after the year 9999, without them.

    pika treats such a message as the end of the connection. The broker would redeliver it on the next one, forever, and
    nobody would know.

    Attributes:
        deliveries: Reads those that have arrived as a whole, for the consumers that are in it.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.deliveries = Deliveries()
        super().__init__(*arguments, **named)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = _AT_ONCE  # noqa: SLF001 - no parameter has it
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        self._frame_buffer += data_in
        while self._frame_buffer:
            self._trim_frame_buffer(self.deliveries.read(self._frame_buffer))
            length, found = self._read_frame()
            if not found:
                return
            self._trim_frame_buffer(length)
            self._process_frame(found)

    def _read_frame(self) -> tuple[int, Any]:
        try:
            found: tuple[int, Any] = super()._read_frame()
        except InvalidFrameError:
            raise
        except Exception as error:
            without = _without_headers(self._frame_buffer, error)
            if without is None:
                raise
            return without
        return found

    def _process_frame(self, frame_value: Any) -> None:
        if isinstance(frame_value, _OF_CONTENT) or (
            isinstance(frame_value, frame.Method) and isinstance(frame_value.method, spec.Basic.Deliver)
        ):
            # No request waits for a delivery; looking for one took pika a seventh of a message's time.
            self.frames_received += 1
            self._deliver_frame_to_channel(frame_value)
        else:
            super()._process_frame(frame_value)


def _without_headers(data: bytes, error: Exception) -> tuple[int, Any] | None:
    """The frame of a message's properties at the start of the data, and its length; None if it is another frame."""
    kind, channel, size = _FRAME.unpack_from(data)
    if kind != spec.FRAME_HEADER:
        return None
    content = data[_FRAME.size : _FRAME.size + size]
    _, _, body = _CONTENT.unpack_from(content)
    (flags,) = _FLAGS.unpack_from(content, _CONTENT.size)
    if not flags & spec.BasicProperties.FLAG_HEADERS:
        return None
    first = start = _CONTENT.size + _FLAGS.size
    for flag in _BEFORE:
        if flags & flag:
            start += 1 + content[start]
    end = start + _LENGTH.size + _LENGTH.unpack_from(content, start)[0]
    properties = UnreadableProperties()
    properties.reason = error
    others = _FLAGS.pack(flags & ~spec.BasicProperties.FLAG_HEADERS) + content[first:start] + content[end:]
    properties.decode(others)
    return _FRAME.size + size + spec.FRAME_END_SIZE, frame.Header(channel, body, properties)
