"""A small server that plays a Kafka broker, with scripted responses, and records its requests."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Callable
from typing import Any

from typing_extensions import Self

from sparkjet.connectors.kafka.wire import Decoder, Encoder

METADATA, COORDINATOR, HANDSHAKE, INIT, END, AUTHENTICATE, DESCRIBE, LIST = 3, 10, 17, 22, 26, 36, 65, 66
MARK, PRODUCERS, CONFIGS = 27, 61, 32
FLEXIBLE = (MARK, PRODUCERS, DESCRIBE, LIST)
PRODUCER, TIMEOUT = 42, 60_000
"""The producer of every described transaction."""
Answers = dict[int, Callable[[], bytes | None]]
"""The response's fields by request number; None to close the connection."""


class Broker:
    """A broker with scripted responses; ends with the ``with`` block."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[int] = []
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while head := self.request.recv(4):
                    said = Decoder(self.request.recv(struct.unpack(">i", head)[0]))
                    key, _, number = said.int16(), said.int16(), said.int32()
                    broker.asked.append(key)
                    fields = broker.answers[key]()
                    if fields is None:
                        return
                    answer = struct.pack(">i", number) + (b"\0" if key in FLEXIBLE else b"") + fields
                    self.request.sendall(struct.pack(">i", len(answer)) + answer)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def metadata(*ports: int, topic: tuple[str, int] | None = None) -> bytes:
    """Brokers and, optionally, a topic with its error."""
    answer = Encoder().int32(0).int32(len(ports))
    for node, port in enumerate(ports):
        answer.int32(node).string("127.0.0.1").int32(port).int16(-1)
    answer.string("cluster").int32(0).int32(0 if topic is None else 1)
    if topic is not None:
        # Its only partition is led by the first broker, and has no other.
        answer.int16(topic[1]).string(topic[0]).int8(0).int32(1)
        answer.int16(0).int32(0).int32(0).int32(0).int32(0)
    return answer.encoded()


def configs(value: str, code: int = 0) -> bytes:
    """A setting of a topic; nothing but an error code if there is one."""
    answer = Encoder().int32(0).int32(1).int16(code).string("").int8(2).string("t").int32(0 if code else 1)
    if not code:
        answer.string("cleanup.policy").string(value).int8(0).int8(1).int8(0).int32(0)
    return answer.encoded()


def coordinator(port: int) -> bytes:
    return Encoder().int32(0).int16(0).int16(-1).int32(0).string("127.0.0.1").int32(port).encoded()


def error(code: int) -> bytes:
    return Encoder().int32(0).int16(code).encoded()


def producers(*open_ones: int, topic: str = "t", code: int = 0, epoch: int = 3) -> bytes:
    """Producers with an open transaction in the only partition of a topic; one more has none."""
    answer = Encoder().int32(0).unsigned(2).compact_string(topic).unsigned(2).int32(0).int16(code).unsigned(0)
    answer.unsigned(len(open_ones) + 2)
    for number in (*open_ones, 0):
        answer.int64(number).int32(epoch).int32(9).int64(8).int32(5).int64(17 if number else -1).no_tags()
    return answer.no_tags().no_tags().no_tags().encoded()


def marked(code: int) -> bytes:
    """The result of writing a marker to the only partition of a topic."""
    answer = Encoder().unsigned(2).int64(PRODUCER).unsigned(2).compact_string("t").unsigned(2).int32(0).int16(code)
    return answer.no_tags().no_tags().no_tags().no_tags().encoded()


def listing(*names: str, state: str = "Ongoing", producer: int = 1) -> bytes:
    answer = Encoder().int32(0).int16(0).unsigned(1).unsigned(len(names) + 1)
    for name in names:
        answer.compact_string(name).int64(producer).compact_string(state).no_tags()
    return answer.no_tags().encoded()


def described(
    state: str, *, code: int = 0, producer: int = PRODUCER, epoch: int = 0, written: str | None = None
) -> bytes:
    """A transaction that has written to the only partition of a topic, or to none."""
    answer = Encoder().int32(0).unsigned(2).int16(code).unsigned(2).raw(b"t")
    answer.unsigned(len(state) + 1).raw(state.encode()).int32(TIMEOUT).int64(5).int64(producer).int16(epoch)
    answer.unsigned(1 if written is None else 2)
    if written is not None:
        answer.compact_string(written).unsigned(2).int32(0).no_tags()
    return answer.no_tags().no_tags().encoded()


def in_turn(*values: Any) -> Callable[[], Any]:
    """Returns each value once, and the last one forever."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]
