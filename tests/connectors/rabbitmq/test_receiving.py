"""A receiver that reads a real broker: over lost connections and restarts each delivery is one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pika
import pytest

from sparkjet.clock import SystemClock
from sparkjet.connectors.rabbitmq.data_source import ROWS
from sparkjet.connectors.rabbitmq.source import RabbitSource
from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings
from sparkjet.sources.acknowledging.ledger import Ledger, LedgerState
from sparkjet.sources.acknowledging.offset import Counts
from sparkjet.sources.acknowledging.receiver import Limits, Receiver
from sparkjet.sources.acknowledging.spool import Spool
from tests.connectors.rabbitmq.messages import ids, ready, send
from tests.servers.rabbitmq import RabbitServer
from tests.servers.tcp_proxy import TcpProxy

LONG = 60.0
"""Seconds that a test waits at most."""


def source(port: int, *queues: str, **options: str) -> RabbitSource:
    """A source that is not open yet."""
    return RabbitSource(
        RabbitSettings.of({"host": "127.0.0.1", "port": str(port), "queues": ",".join(queues), **options})
    )


class Record(NamedTuple):
    """The state that a run leaves if it ends after a decision."""

    counts: Counts
    state: LedgerState


class Run:
    """A run of a query that reads queues; its epochs are decided when they are asked for."""

    def __init__(self, reading: RabbitSource, directory: Path, record: Record, most: int = 50_000) -> None:
        directory.mkdir()
        clock = SystemClock()
        self.receiver = Receiver(reading, Spool(directory, ROWS), clock.now, Limits(messages=most))
        ledger = Ledger()
        self.counts, state = record
        ledger.restore(state, clock.now())
        self.receiver.start(self.counts, ledger)

    def until_empty(self) -> None:
        """Read until the queues have nothing that nobody was given."""
        while not self.receiver.wait(1_000_000, LONG):
            continue

    def decide(self) -> list[tuple[str, str]]:
        """Queue and id of each row of an epoch, which has all that was read."""
        end = self.receiver.end(self.counts, None)
        batches = self.receiver.rows(sum(self.counts.values()), sum(end.values()))
        self.counts = end
        return [(row["queue"], row["message_id"]) for batch in batches for row in batch.to_pylist()]

    @property
    def record(self) -> Record:
        """Of the newest epoch."""
        return Record(self.counts, self.receiver.state(sum(self.counts.values())))

    def acknowledge(self) -> None:
        self.receiver.acknowledge(sum(self.counts.values()))


@pytest.fixture
def run(rabbitmq: RabbitServer, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(*queues: str, port: int = rabbitmq.port, record: Record | None = None, **options: str) -> Run:
        reading = source(port, *queues, **options)
        given = record or Record(dict.fromkeys(queues, 0), LedgerState(0))
        runs.append(Run(reading, tmp_path / f"{len(runs)}", given, int(options.get("maxUnacknowledged", 50_000))))
        return runs[-1]

    yield begin
    for each in runs:
        each.receiver.stop()


def fanned_out(server: RabbitServer, count: int) -> tuple[str, str]:
    """Two queues that have a copy of each message."""
    queues = server.queue(), server.queue()
    connection = server.connection()
    channel = connection.channel()
    exchange = f"fan-{queues[0]}"
    channel.exchange_declare(exchange, "fanout")
    for queue in queues:
        channel.queue_bind(queue, exchange)
    channel.confirm_delivery()
    for each in ids(0, count):
        channel.basic_publish(exchange, "", b"x", pika.BasicProperties(message_id=each, delivery_mode=2))
    channel.exchange_delete(exchange)
    connection.close()
    return queues


def copies(queues: tuple[str, ...], count: int) -> list[tuple[str, str]]:
    return sorted((queue, each) for queue in queues for each in ids(0, count))


def test_copies_in_two_queues_are_separate_rows_over_a_cut_and_a_restart(
    rabbitmq: RabbitServer, run: Callable[..., Run]
) -> None:
    queues = fanned_out(rabbitmq, 20)
    with TcpProxy(rabbitmq.port) as proxy:
        first = run(*queues, port=proxy.port)
        first.until_empty()
        proxy.cut()
        first.until_empty()
        assert sorted(first.decide()) == copies(queues, 20)
        record = first.record
        first.receiver.stop()
    second = run(*queues, record=record)
    second.until_empty()
    assert second.decide() == []
    second.receiver.stop()
    assert ready(rabbitmq, *queues) == [0, 0]


def test_a_producers_copies_are_rows_over_a_cut(rabbitmq: RabbitServer, run: Callable[..., Run]) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *(each for each in ids(0, 50) for _ in range(2)))
    with TcpProxy(rabbitmq.port) as proxy:
        first = run(queue, port=proxy.port)
        first.until_empty()
        proxy.cut()
        first.until_empty()
        assert len(first.decide()) == 100
        first.acknowledge()
        first.receiver.stop()
    assert ready(rabbitmq, queue) == [0]


def test_ids_of_another_queue_or_of_an_earlier_day_are_other_messages(
    rabbitmq: RabbitServer, run: Callable[..., Run]
) -> None:
    queue, other = rabbitmq.queue(), rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 5))
    first = run(queue)
    first.until_empty()
    assert len(first.decide()) == 5
    record = first.record
    first.acknowledge()
    first.receiver.stop()
    for each in (other, queue):
        send(rabbitmq, each, *ids(0, 5))
        again = run(each, record=record)
        again.until_empty()
        assert sorted(again.decide()) == copies((each,), 5)
        record = again.record
        again.acknowledge()
        again.receiver.stop()


def test_a_lower_limit_than_before_holds_nothing_up(rabbitmq: RabbitServer, run: Callable[..., Run]) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 50))
    first = run(queue)
    first.until_empty()
    assert len(first.decide()) == 50
    record = first.record
    first.receiver.stop()
    second = run(queue, record=record, maxUnacknowledged="10")
    second.until_empty()
    assert second.decide() == []
    assert ready(rabbitmq, queue) == [0]


def test_a_decided_message_that_comes_back_as_a_dead_letter_is_dropped(
    rabbitmq: RabbitServer, run: Callable[..., Run]
) -> None:
    dead, queue = rabbitmq.queue(), f"ttl-{rabbitmq.queue()}"
    connection = rabbitmq.connection()
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    connection.close()
    first = run(queue, dead)
    first.until_empty()
    send(rabbitmq, queue, *ids(0, 3))
    while len(first.receiver.rows(0, sum(first.receiver.end({}, None).values()))) == 0:
        first.receiver.wait(0, LONG)
    first.until_empty()
    decided = first.decide()
    assert len({each for _, each in decided}) == len(decided) == 3
    record = first.record
    first.receiver.stop()
    while ready(rabbitmq, dead) != [3]:
        first.receiver._stopping.wait(0.05)
    second = run(queue, dead, record=record)
    second.until_empty()
    assert second.decide() == []
    assert ready(rabbitmq, queue, dead) == [0, 0]


@pytest.mark.parametrize(
    "heartbeat", [pytest.param("1", marks=pytest.mark.crash), pytest.param("60", marks=pytest.mark.long)]
)
def test_what_a_dead_machine_was_given_is_dropped_when_the_broker_notices(
    rabbitmq: RabbitServer, run: Callable[..., Run], heartbeat: str
) -> None:
    queue = rabbitmq.queue()
    send(rabbitmq, queue, *ids(0, 5))
    # It sends no heartbeats while nobody calls it.
    dead = source(rabbitmq.port, queue, heartbeat=heartbeat)
    dead.open()
    try:
        ledger = Ledger()
        ledger.connect(dead.broker, round(dead.notices_within * 1e6), [queue])
        while ledger.position < 5:
            ledger.receive(dead.receive(5, LONG), lambda _: None)
        second = run(queue, record=Record({queue: 5}, ledger.snapshot(5)))
        send(rabbitmq, queue, *ids(5, 8))
        while second.receiver._inbox.ledger.remembered:
            second.receiver.wait(1_000_000, 1)
        second.until_empty()
        # It was given some of these, too.
        assert sorted(second.decide()) == [(queue, each) for each in ids(5, 8)]
        second.acknowledge()
        second.receiver.stop()
    finally:
        dead.close()
    assert ready(rabbitmq, queue) == [0]


class Counted(RabbitSource):
    """Counts its connections, and what the broker has confirmed."""

    opened = acknowledged = 0

    def acknowledge(self, count: int) -> None:
        super().acknowledge(count)
        self.acknowledged += count

    def open(self) -> None:
        super().open()
        self.opened += 1


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("quorum", [False, True])
def test_epochs_that_are_longer_than_the_broker_waits_for_an_acknowledgement(tmp_path: Path, quorum: bool) -> None:
    """The broker ends the channel; in CI, connections are cut."""
    with RabbitServer({"consumer_timeout": "2000"}, arguments="-rabbit channel_tick_interval 1000") as server:
        queue = server.queue(quorum=quorum)
        send(server, queue, *ids(0, 20))
        reading = Counted(source(server.port, queue)._settings)
        long = Run(reading, tmp_path / "spool", Record({queue: 0}, LedgerState(0)))
        try:
            for epoch in range(2):
                while sum(long.receiver.end({}, None).values()) < 20 * epoch + 20:
                    long.receiver.wait(20 * epoch + 19, LONG)
                before = reading.opened
                while reading.opened < before + 2:
                    long.receiver.wait(1_000_000, 1)
                assert long.decide() == [(queue, each) for each in ids(20 * epoch, 20 * epoch + 20)]
                send(server, queue, *ids(20 * epoch + 20, 20 * epoch + 40))
                long.acknowledge()
                # On whatever connection has them by then.
                while reading.acknowledged < 20 * epoch + 20:
                    long.receiver.wait(1_000_000, 1)
        finally:
            long.receiver.stop()
        # No epoch after theirs was needed for them.
        assert ready(server, queue) == [20]
