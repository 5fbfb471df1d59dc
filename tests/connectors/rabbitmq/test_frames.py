"""Frames of messages whose headers pika cannot decode."""

from __future__ import annotations

import struct

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame
from pika.exceptions import InvalidFrameError

from sparkjet.connectors.rabbitmq.frames import TolerantConnection, UnreadableProperties

FAR = b"T" + struct.pack(">Q", 1_800_000_000_000)
"""A time beyond the year 9999."""
UNKNOWN = b"Z"
"""A type that AMQP does not have."""


def read(data: bytes) -> tuple[int, object]:
    """The number of bytes that a connection reads of those that have arrived, and the frame that they are."""
    connection = TolerantConnection.__new__(TolerantConnection)
    connection._frame_buffer = data
    return connection._read_frame()


def header(properties: pika.BasicProperties, value: bytes) -> bytes:
    """A frame with a header of this value, and other properties."""
    properties.headers = {"a": None}
    whole = frame.Header(3, 70_000, properties).marshal()
    table = b"\x01a" + value
    before, _, after = whole.partition(struct.pack(">I", 3) + b"\x01aV")
    changed = before + struct.pack(">I", len(table)) + table + after
    size = struct.pack(">I", len(changed) - 8)
    return changed[:3] + size + changed[7:]


texts = st.none() | st.text(max_size=20)


@given(value=st.sampled_from([FAR, UNKNOWN]), content_type=texts, encoding=texts, id_=texts, correlation=texts)
def test_other_properties_are_there(
    value: bytes, content_type: str | None, encoding: str | None, id_: str | None, correlation: str | None
) -> None:
    given_ = pika.BasicProperties(
        content_type=content_type, content_encoding=encoding, message_id=id_, correlation_id=correlation, timestamp=7
    )
    data = header(given_, value)
    # What comes behind it is another frame.
    length, found = read(data + b"\x08")
    assert length == len(data)
    assert isinstance(found, frame.Header)
    assert (found.channel_number, found.body_size) == (3, 70_000)
    properties = found.properties
    assert isinstance(properties, UnreadableProperties)
    assert properties.headers is None
    for name in ("content_type", "content_encoding", "message_id", "correlation_id", "timestamp"):
        assert getattr(properties, name) == getattr(given_, name)


def test_headers_that_can_be_decoded_are_there() -> None:
    _, found = read(header(pika.BasicProperties(), b"t\x01"))
    assert isinstance(found, frame.Header)
    assert not isinstance(found.properties, UnreadableProperties)
    assert found.properties.headers == {"a": True}


def test_what_is_not_a_frame_ends_the_connection() -> None:
    with pytest.raises(InvalidFrameError):
        read(b"\x02\x00\x03\x00\x00\x00\x00X")
    assert read(header(pika.BasicProperties(), FAR)[:-1]) == (0, None)
