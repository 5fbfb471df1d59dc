"""The Artemis source against a real broker: what it delivers again, and what ends a query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.connectors.artemis.data_source import ROWS
from sparkjet.connectors.artemis.source import ArtemisSource
from sparkjet.connectors.artemis.source_settings import ArtemisSettings
from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import ConnectionLostError, Message
from sparkjet.sources.acknowledging.ledger import Ledger
from sparkjet.sources.acknowledging.receiver import Limits, Receiver
from sparkjet.sources.acknowledging.spool import Spool
from tests.faults.waiting import until
from tests.servers.artemis import CLERK, PASSWORD, USER
from tests.sources.acknowledging.waiting import until_alone

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer

LONG = 60.0
"""Seconds that a test waits at most."""


def send(server: ArtemisServer, queue: str, *bodies: str, **headers: object) -> None:
    """Send persistent messages, and wait until the broker has them."""
    with server.client() as client:
        client.send(queue, *bodies, **headers)


def settings(server: ArtemisServer, *queues: str, **options: object) -> ArtemisSettings:
    given = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "queues": ",".join(queues)}
    return ArtemisSettings.of({name: str(value) for name, value in {**given, **options}.items()})


@pytest.fixture
def opened(artemis: ArtemisServer) -> Iterator[Callable[..., ArtemisSource]]:
    sources: list[ArtemisSource] = []

    def make(*queues: str, **options: object) -> ArtemisSource:
        sources.append(ArtemisSource(settings(artemis, *queues, **options)))
        sources[-1].open()
        return sources[-1]

    yield make
    for each in sources:
        each.close()
        each.close()


def received(source: ArtemisSource, count: int) -> list[Message]:
    """The given number of messages, in their order."""
    found: list[Message] = []
    while len(found) < count:
        found += source.receive(count - len(found), LONG)
    return found


def bodies(messages: Sequence[Message]) -> list[str]:
    return [message.values[0].decode() for message in messages]


def numbered(start: int, end: int) -> list[str]:
    return [f"m{number}" for number in range(start, end)]


def test_what_is_not_acknowledged_comes_again_with_its_id(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    send(artemis, queue, *numbered(0, 10))
    first = opened(queue)
    given = received(first, 5)
    assert bodies(given) == numbered(0, 5)
    first.acknowledge(2)
    assert first.ready() == {queue: 5}
    first.close()
    second = opened(queue)
    again = received(second, 8)
    assert bodies(again) == numbered(2, 10)
    assert [message.id for message in again[:3]] == [message.id for message in given[2:]]
    assert len({message.id for message in again}) == 8
    second.acknowledge(8)
    assert second.ready() == {queue: 0}
    second.close()
    assert opened(queue).receive(1, 0.2) == []
    assert artemis.count(queue) == 0


def test_it_is_alone_when_others_have_put_back_what_they_had(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    send(artemis, queue, *numbered(0, 300))
    other = opened(queue)
    received(other, 300)
    source = opened(queue)
    assert source.ready() == {queue: 0}
    assert not source.alone
    other.close()
    until_alone(source, queue, 300)


def test_a_producers_property_called_ack_does_not_keep_a_message_in_its_queue(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    send(artemis, queue, "m0", ack="of the producer")
    source = opened(queue)
    received(source, 1)
    source.acknowledge(1)
    assert artemis.count(queue) == 0


def test_all_queues_are_acknowledged_together(artemis: ArtemisServer, opened: Callable[..., ArtemisSource]) -> None:
    queues = artemis.queue(), artemis.queue()
    for queue in queues:
        send(artemis, queue, *numbered(0, 3))
    source = opened(*queues)
    given = received(source, 6)
    assert sorted((message.queue, *bodies([message])) for message in given) == sorted(
        (queue, body) for queue in queues for body in numbered(0, 3)
    )
    source.acknowledge(6)
    source.close()
    assert opened(*queues).ready() == dict.fromkeys(queues, 0)


def test_the_broker_keeps_what_is_beyond_the_window(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    send(artemis, queue, *("x" * 1000 for _ in range(5)))
    source = opened(queue, consumerWindowSize=2000)
    assert len(received(source, 2)) == 2
    assert source.receive(9, 0.2) == []
    assert source.ready() == {queue: 3}
    source.acknowledge(1)
    assert len(received(source, 1)) == 1


def test_a_message_has_its_headers_and_properties(artemis: ArtemisServer, opened: Callable[..., ArtemisSource]) -> None:
    queue = artemis.queue()
    headers = {"correlation-id": "c", "type": "order", "content-type": "text/plain", "number": "7:8\n"}
    send(artemis, queue, "hellö", **headers)
    (message,) = received(opened(queue, idProperty="number"), 1)
    values = dict(zip(ROWS.names, message.values, strict=True))
    assert values["body"] == "hellö".encode()
    assert values["properties"] == [("number", "7:8\n")]
    assert [values[name] for name in ("queue", "correlation_id", "type", "content_type", "redelivered")] == [
        queue, "c", "order", "text/plain", False
    ]  # fmt: skip
    assert message.id == "7:8\n"


def test_a_queue_of_another_address_has_a_name_of_both(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = f"{artemis.queue()}::{artemis.queue()}2"
    with artemis.client() as client:
        client.read(queue, 0)
        client.send(queue, "m0")
    source = opened(queue)
    assert received(source, 1)[0].queue == queue
    assert source.ready() == {queue: 0}


def test_a_queue_that_is_missing_ends_the_query_and_is_not_created(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    for _ in range(2):
        with pytest.raises(SourceError, match=r"queue 'missing' does not exist at 127.0.0.1:\d+: create it first"):
            opened(artemis.queue(), "missing")


def test_a_queue_that_the_broker_has_removed_because_it_was_emptied_has_no_messages(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = f"passing.{uuid4().hex}"
    send(artemis, queue, "m0")
    first = opened(queue)
    assert bodies(received(first, 1)) == ["m0"]
    first.acknowledge(1)
    first.close()
    until(lambda: not artemis.has(queue), "the queue's end")
    # A run that is scheduled before somebody sends again has nothing to do.
    second = opened(queue)
    assert second.ready() == {queue: 0}
    send(artemis, queue, "m1")
    assert bodies(received(second, 1)) == ["m1"]


def test_a_queue_that_has_gone_may_come_back(artemis: ArtemisServer, opened: Callable[..., ArtemisSource]) -> None:
    queue = artemis.queue()
    source = opened(queue)
    with artemis.client() as client:
        client.ask("broker", operation="destroyQueue", parameters=[queue, True])
    with pytest.raises(ConnectionLostError, match=r"^consumer with ID disconnected by server$"):
        received(source, 1)
    with pytest.raises(ConnectionLostError, match=f"queue '{queue}' no longer exists"):
        source.open()
    with artemis.client() as client:
        client.read(queue, 0)
    send(artemis, queue, "m0")
    source.open()
    assert bodies(received(source, 1)) == ["m0"]


def test_what_expires_while_it_is_held_is_read_once_and_acknowledged(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    expires = round(time.time() * 1000) + 1500
    send(artemis, queue, "m0", "m1", expires=expires)
    first = opened(queue)
    assert bodies(received(first, 2)) == ["m0", "m1"]
    until(lambda: time.time() * 1000 > expires, "the end of the messages")
    first.acknowledge(1)
    first.close()
    # The broker does not deliver it again: in the first run it was read.
    second = opened(queue)
    assert second.receive(1, 0.2) == []
    until(lambda: artemis.count(queue) == 0, "an empty queue")


def test_a_large_message_comes_whole_and_again(artemis: ArtemisServer, opened: Callable[..., ArtemisSource]) -> None:
    queue, body = artemis.queue(), "0123456789abcdef" * 1_250_000
    send(artemis, queue, body, "m1")
    first = opened(queue)
    assert bodies(received(first, 1)) == [body]
    # It is larger than the window.
    assert first.ready() == {queue: 1}
    first.close()
    with artemis.client() as client:
        until(lambda: client.ask(f"queue.{queue}", "deliveringCount") == 0, "a message that is put back")
    source = opened(queue)
    assert bodies(received(source, 1)) == [body]
    source.acknowledge(1)
    assert bodies(received(source, 1)) == ["m1"]


def test_a_wrong_password_is_named_and_not_shown(artemis: ArtemisServer) -> None:
    source = ArtemisSource(settings(artemis, "q", password="s3cret"))
    with pytest.raises(SourceError, match=r"refuses user 'guest': .*password is invalid") as raised:
        source.open()
    assert "s3cret" not in str(raised.value)
    source.close()


def test_a_queue_whose_messages_the_broker_drops_is_refused(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    dropped, buried = artemis.queue("dropped."), artemis.queue("buried.")
    with pytest.raises(SourceError, match=f"drops messages of queue '{dropped}' after 3 deliveries"):
        opened(dropped)
    send(artemis, buried, "m0")
    assert bodies(received(opened(buried), 1)) == ["m0"]


def test_a_user_who_may_not_ask_for_counts_is_told_what_to_allow(artemis: ArtemisServer) -> None:
    source = ArtemisSource(settings(artemis, artemis.queue(), user=CLERK, password=CLERK))
    with pytest.raises(SourceError, match=r'Allow it "manage" of activemq.management'):
        source.open()
    source.close()


@pytest.mark.crash
def test_a_broker_that_was_killed_is_waited_for(artemis: ArtemisServer, tmp_path: Path) -> None:
    queue = artemis.queue()
    send(artemis, queue, *numbered(0, 100))
    chosen = settings(artemis, queue)
    (tmp_path / "spool").mkdir()
    receiver = Receiver(ArtemisSource(chosen), Spool(tmp_path / "spool", ROWS), lambda: 0, Limits())
    receiver.start({}, Ledger())
    try:
        while receiver.end({}, None).get(queue, 0) < 100:
            receiver.wait(99, LONG)
        receiver.acknowledge(30)
        artemis.restart()
        send(artemis, queue, "m100")

        def rows() -> list[str]:
            end = sum(receiver.end({}, None).values())
            # Those before are acknowledged, and removed as their file is.
            return [body.decode() for batch in receiver.rows(30, end) for body in batch.column("body").to_pylist()]

        while "m100" not in rows():
            receiver.wait(sum(receiver.end({}, None).values()), LONG)
        # Those acknowledged may be there still: none was read twice.
        assert rows()[-71:] == numbered(30, 101)
        receiver.acknowledge(sum(receiver.end({}, None).values()))
    finally:
        receiver.stop()
    assert artemis.count(queue) == 0


@pytest.mark.crash
def test_what_was_acknowledged_is_gone_though_the_broker_is_killed(
    artemis: ArtemisServer, opened: Callable[..., ArtemisSource]
) -> None:
    queue = artemis.queue()
    send(artemis, queue, *numbered(0, 3000))
    for left in (2000, 1000, 0):
        source = opened(queue)
        assert bodies(received(source, 1000)) == numbered(2000 - left, 3000 - left)
        source.acknowledge(1000)
        artemis.restart()
        assert artemis.count(queue) == left
