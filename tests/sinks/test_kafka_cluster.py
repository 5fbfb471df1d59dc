"""Several brokers, as a small server of ours plays them: coordinators that move, brokers that are away or broken."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from typing_extensions import Self

from sparkjet.sinks.kafka.access import Access
from sparkjet.sinks.kafka.cluster import Cluster
from sparkjet.sinks.kafka.connection import BrokerError, RefusedError
from sparkjet.sinks.kafka.wire import Decoder, Encoder

METADATA, COORDINATOR, INIT, END, DESCRIBE, LIST = 3, 10, 22, 26, 65, 66
FLEXIBLE = (DESCRIBE, LIST)
Answers = dict[int, Callable[[], bytes | None]]
"""By the number of a request: its answer's fields; None to hang up."""


class Broker:
    """A broker that answers as it is told; ends with the ``with`` block."""

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


def metadata(*ports: int) -> bytes:
    answer = Encoder().int32(0).int32(len(ports))
    for node, port in enumerate(ports):
        answer.int32(node).string("127.0.0.1").int32(port).int16(-1)
    return answer.string("cluster").int32(0).int32(0).encoded()


def coordinator(port: int) -> bytes:
    return Encoder().int32(0).int16(0).int16(-1).int32(0).string("127.0.0.1").int32(port).encoded()


def error(code: int) -> bytes:
    return Encoder().int32(0).int16(code).encoded()


def listing(*names: str) -> bytes:
    answer = Encoder().int32(0).int16(0).unsigned(1).unsigned(len(names) + 1)
    for name in names:
        answer.unsigned(len(name) + 1).raw(name.encode()).int64(1).unsigned(8).raw(b"Ongoing").no_tags()
    return answer.no_tags().encoded()


def in_turn(*values: Any) -> Callable[[], Any]:
    """Each value once, the last for ever."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with ExitStack() as stack:
        yield stack.enter_context(Broker({})), stack.enter_context(Broker({}))


def cluster(*brokers: Broker, patience: float = 20.0) -> Cluster:
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    return Cluster(Access.of({"bootstrap.servers": servers}), patience)


def test_a_coordinator_that_has_moved_is_looked_for_again(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {COORDINATOR: in_turn(coordinator(one.port), coordinator(other.port)), END: lambda: error(16)}
    other.answers = {END: lambda: error(0)}
    with cluster(one) as asked:
        assert asked.commit("t", 1, 0) == 0
    assert (one.asked, other.asked) == ([COORDINATOR, END, COORDINATOR], [END])


def test_a_coordinator_that_hangs_up_is_asked_again_which_a_commit_allows(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {COORDINATOR: lambda: coordinator(other.port)}
    other.answers = {END: in_turn(None, error(51), error(14), error(0))}
    with cluster(one) as asked:
        assert asked.commit("t", 1, 0) == 0
    assert other.asked == [END] * 4


def test_each_broker_lists_what_it_coordinates_and_prefixes_are_exact(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {METADATA: lambda: metadata(one.port, other.port), LIST: lambda: listing("a/_/1", "b/2")}
    other.answers = {LIST: lambda: listing("a/x/1", "a/_/2")}
    with cluster(one) as asked:
        assert asked.open_transactions("a/_/") == ["a/_/1", "a/_/2"]


def test_a_server_that_is_away_is_passed_over(brokers: tuple[Broker, Broker]) -> None:
    away, here = brokers
    away.answers = {METADATA: lambda: None}
    here.answers = {METADATA: lambda: metadata(here.port)}
    with cluster(away, here) as asked:
        assert asked.metadata().cluster == "cluster"


def test_what_no_asking_mends_is_not_asked_again(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    one.answers = {COORDINATOR: lambda: Encoder().int32(0).int16(53).int16(-1).int32(0).int16(-1).int32(0).encoded()}
    with cluster(one) as asked, pytest.raises(RefusedError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        asked.roll_back("t")
    assert one.asked == [COORDINATOR]


@pytest.mark.parametrize("answer", [b"", b"\0\0", Encoder().int32(0).int32(2**30).encoded()])
def test_what_is_not_kafka_is_named_and_nothing_of_it_is_used(brokers: tuple[Broker, Broker], answer: bytes) -> None:
    one, _ = brokers
    one.answers = {METADATA: lambda: answer}
    with cluster(one, patience=0.05) as asked, pytest.raises(BrokerError, match="what is not Kafka's protocol"):
        asked.metadata()
