"""Networks between sparkjet and the brokers that are slow, cut, silent or half open: each message once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pika
import pytest

from sparkjet.connectors.artemis.data_source import ArtemisDataSource
from sparkjet.connectors.artemis.publishing import publish as publish_to_artemis
from sparkjet.connectors.artemis.stomp import StompAddress
from sparkjet.connectors.rabbitmq.data_source import RabbitDataSource
from sparkjet.connectors.rabbitmq.publisher import Message, publish
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.errors import SinkError
from sparkjet.options import Options
from tests.connectors.artemis.epochs import bodies, expected, frames, handle_of
from tests.connectors.rabbitmq.messages import held, ids, ready, send
from tests.crash.networks import Network, Reading
from tests.faults.waiting import until
from tests.servers.artemis import PASSWORD, USER
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource
    from tests.servers.artemis import ArtemisServer
    from tests.servers.rabbitmq import RabbitServer

PER_RUN = 40
"""Messages that are sent to each queue before a run."""
RUNS, EPOCHS = 3, 4
TRIES = 200
"""Attempts at an epoch, all of which a network may cut."""
# Broker and client must notice within the test that the other side is gone.
QUICK = {"heartbeat": "1", "reconnectTimeoutMs": "20000"}
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 50))]
"""Four suites have these."""

pytestmark = pytest.mark.crash


def read_all(
    make: Callable[[int], AcknowledgingDataSource],
    port: int,
    seed: int,
    home: Path,
    fill: Callable[[int, int], None],
    left: Callable[[], int],
) -> None:
    """Read what is sent meanwhile, through a network and with drivers that fail; each message must be decided once.

    Args:
        make: Makes the source that reads through a port.
        port: The broker's.
        seed: Of everything that fails.
        home: Where the query keeps its records.
        fill: Sends the messages of a range to each of two queues, with the same ids.
        left: How many the queues still have, given to somebody or not.
    """
    random = Random(seed)
    with TcpProxy(port) as proxy:
        source = make(proxy.port)
        reading = Reading(lambda: source.streamReader(source.schema()), home)
        network = Network(proxy, random)

        def before() -> bool:
            network.strike()
            return random.random() < 1 / 12

        for number in range(RUNS):
            fill(number * PER_RUN, (number + 1) * PER_RUN)
            reading.run(random.randrange(1, EPOCHS), random.randrange(1, PER_RUN), before)
            network.history.append("started again")
        network.heal()

        def is_empty() -> bool:
            reading.run(2, 2 * RUNS * PER_RUN, lambda: False)
            return left() == 0

        until(is_empty, f"empty queues; seed {seed}: {network.history}")
    found = Counter(reading.decided)
    wrong = {message: times for message, times in found.items() if times != 1}
    assert not wrong, f"seed {seed}: {wrong}: {network.history}"
    assert len(found) == 2 * RUNS * PER_RUN, f"seed {seed}: {len(found)}: {network.history}"


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_of_rabbitmq_is_read_once(rabbitmq: RabbitServer, tmp_path: Path, seed: int) -> None:
    queues = [rabbitmq.queue(quorum=bool(quorum)) for quorum in range(2)]

    def make(port: int) -> RabbitDataSource:
        return RabbitDataSource({**QUICK, "host": "127.0.0.1", "port": str(port), "queues": ",".join(queues)})

    def fill(first: int, end: int) -> None:
        # As a fanout exchange does.
        for queue in queues:
            send(rabbitmq, queue, *ids(first, end))

    read_all(make, rabbitmq.port, seed, tmp_path, fill, lambda: sum(ready(rabbitmq, *queues)))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_of_artemis_is_read_once(artemis: ArtemisServer, tmp_path: Path, seed: int) -> None:
    queues = [artemis.queue() for _ in range(2)]
    options = {**QUICK, "host": "127.0.0.1", "user": USER, "password": PASSWORD, "queues": ",".join(queues)}

    def make(port: int) -> ArtemisDataSource:
        return ArtemisDataSource({**options, "port": str(port)})

    def fill(first: int, end: int) -> None:
        with artemis.client() as client:
            for queue in queues:
                client.send(queue, *ids(first, end))

    read_all(make, artemis.port, seed, tmp_path, fill, lambda: sum(map(artemis.count, queues)))


def publish_all(port: int, seed: int, epochs: int, send: Callable[[int, int, Callable[[int], None]], None]) -> None:
    """Publish epochs through a network that fails, each again until it has succeeded.

    Args:
        port: The broker's.
        seed: Of everything that fails.
        epochs: How many.
        send: Publishes an epoch through a port, and calls what it is given before each message.
    """
    random = Random(seed)
    with TcpProxy(port) as proxy:
        network = Network(proxy, random)

        def before(message: int) -> None:
            if random.random() < 1 / 10:
                network.history.append(f"at {message}")
                network.strike()

        for epoch in range(1, epochs + 1):
            for _ in range(TRIES):
                try:
                    send(proxy.port, epoch, before)
                except SinkError:
                    network.history.append("again")
                else:
                    break
            else:
                pytest.fail(f"seed {seed}: {network.history}")


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_gets_to_rabbitmq_with_one_id(rabbitmq: RabbitServer, seed: int) -> None:
    queue, rows = rabbitmq.queue(), 30

    def messages(epoch: int, before: Callable[[int], None]) -> Iterator[Message]:
        for number in range(rows):
            before(number)
            properties = pika.BasicProperties(message_id=f"{epoch}-{number}", delivery_mode=2)
            yield Message("", queue, f"{epoch}-{number}".encode(), properties)

    def send(port: int, epoch: int, before: Callable[[int], None]) -> None:
        options: dict[str, Any] = {"host": "127.0.0.1", "port": str(port), "heartbeat": "1"}
        connection = RabbitSinkSettings.of(Options(options)).connection
        publish(connection, messages(epoch, before), 2.0)

    publish_all(rabbitmq.port, seed, 3, send)
    found = held(rabbitmq, queue)
    assert all(properties.message_id == body.decode() for properties, body in found)
    # At least once: who drops by id has each message, in order.
    assert list(dict.fromkeys(body.decode() for _, body in found)) == expected(1, 2, 3, rows=rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_gets_to_artemis_once(artemis: ArtemisServer, seed: int) -> None:
    queue, query, rows = artemis.queue(), uuid4().hex, 10

    def send(port: int, epoch: int, before: Callable[[int], None]) -> None:
        at = {number: lambda number=number: before(number) for number in range(rows)}
        address = StompAddress("127.0.0.1", port, USER, PASSWORD, heartbeat=2)
        publish_to_artemis(address, handle_of(query, epoch), frames(queue, epoch, at=at), lambda: before(rows))

    publish_all(artemis.port, seed, 4, send)
    assert bodies(artemis, queue) == expected(1, 2, 3, 4)
