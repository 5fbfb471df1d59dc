"""Deliveries that are read from bytes: the same ones, in the same order, as pika makes of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pika
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pika import frame, spec
from pika.callback import CallbackManager
from pika.channel import Channel
from pika.exceptions import InvalidFrameError

from sparkjet.connectors.rabbitmq.deliveries import Deliveries
from sparkjet.connectors.rabbitmq.frames import TolerantConnection

FRAME = 20
"""Bytes of a body in a frame; longer ones come in several."""
CONSUMERS = ("a", "bé")
READ = ("message_id", "content_type", "correlation_id", "reply_to", "timestamp", "type", "headers")


class Reading:
    """A connection that is given bytes, and what comes out of it; ``slowly`` by pika alone."""

    def __init__(self, *, slowly: bool = False) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.by_pika = 0
        self._connection = connection = TolerantConnection.__new__(TolerantConnection)
        connection.callbacks = CallbackManager()
        connection.deliveries = Deliveries()
        connection._frame_buffer = b""
        connection.bytes_received = connection.frames_received = 0
        connection._heartbeat_checker = None
        channel = Channel(connection, 1, lambda _: None)
        connection._channels = {1: channel}
        for consumer in CONSUMERS:
            channel._consumers[consumer] = self._of_pika
            if not slowly:
                connection.deliveries.consumers[consumer] = self._accept

    def give(self, *pieces: bytes) -> Reading:
        for piece in pieces:
            self._connection._on_data_available(piece)
        return self

    @property
    def received(self) -> int:
        """What heartbeats go by."""
        return int(self._connection.bytes_received)

    def _of_pika(self, _: Channel, method: Any, properties: Any, body: bytes) -> None:
        self.by_pika += 1
        self._accept(method, properties, body)

    def _accept(self, method: Any, properties: Any, body: bytes) -> None:
        read = [getattr(properties, name) for name in READ]
        route = method.consumer_tag, method.delivery_tag, method.redelivered, method.exchange, method.routing_key
        self.taken.append((*route, *read, body))


def message(body: bytes = b"body", tag: int = 1, consumer: str = "a", key: str = "key", **properties: Any) -> bytes:
    """The frames of a delivery."""
    method = spec.Basic.Deliver(consumer, tag, tag % 2 == 0, "exchange", key)
    header = frame.Header(1, len(body), pika.BasicProperties(**properties))
    parts = [frame.Body(1, body[at : at + FRAME]) for at in range(0, len(body), FRAME)]
    return b"".join(each.marshal() for each in (frame.Method(1, method), header, *parts))


texts = st.none() | st.text(max_size=5)
messages = st.builds(
    message,
    st.binary(max_size=2 * FRAME + 5),
    st.integers(1, 2**63),
    st.sampled_from([*CONSUMERS, "gone"]),
    st.text(max_size=5),
    content_type=texts,
    content_encoding=texts,
    headers=st.none() | st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 9), max_size=2),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts,
    reply_to=texts,
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**63),
    type=texts,
    user_id=texts,
    app_id=texts,
    cluster_id=texts,
)


@given(st.lists(messages | st.just(frame.Heartbeat().marshal()), max_size=6), st.lists(st.integers(1, 60)))
@example([message(message_id="m" * 7), message(b"", 2)], [3, 50])
def test_they_are_those_of_pika_wherever_the_bytes_are_cut(frames: Sequence[bytes], cuts: Sequence[int]) -> None:
    rest, pieces = b"".join(frames), []
    for size in cuts:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces = [piece for piece in (*pieces, rest) if piece]
    fast, slow = Reading().give(*pieces), Reading(slowly=True).give(*pieces)
    assert fast.taken == slow.taken
    assert fast.received == slow.received == len(b"".join(frames))


def test_pika_reads_none_that_has_arrived_as_a_whole_in_frames_of_its_own() -> None:
    whole = message(message_id="m", headers={"a": 1}) + message(b"", 2, "bé", content_type="text/plain")
    read = Reading().give(whole)
    assert (len(read.taken), read.by_pika) == (2, 0)
    large = Reading().give(message(bytes(FRAME + 1)))
    assert (len(large.taken), large.by_pika) == (1, 1)


@pytest.mark.parametrize("after", [b"body", b"m"])
def test_what_is_no_frame_ends_the_connection(after: bytes) -> None:
    data = message(message_id="m")
    end = data.index(after) + len(after)
    with pytest.raises(InvalidFrameError):
        Reading().give(data[:end] + b"X" + data[end + 1 :])


def test_text_that_is_not_text_is_left_to_pika() -> None:
    data = message(message_id="id").replace(b"\x02id", struct.pack("B2s", 2, b"\xff\xfe"))
    (taken,) = Reading().give(data).taken
    assert taken[5] == b"\xff\xfe"
