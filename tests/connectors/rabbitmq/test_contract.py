"""The contract of acknowledging sources, passed by RabbitMQ's with classic and quorum queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.rabbitmq.source import RabbitSource
from sparkjet.connectors.rabbitmq.source_settings import RabbitSettings
from sparkjet.testing.acknowledging_contract import QueuesUnderTest
from tests.connectors.rabbitmq.messages import send
from tests.servers.tcp_proxy import TcpProxy
from tests.sources.acknowledging.broker_contract import BrokerContract

if TYPE_CHECKING:
    from tests.servers.rabbitmq import RabbitServer


class TestRabbit(BrokerContract):
    # Those that count deliveries; the other tests here and crash/farmed/test_queues.py read classic ones.
    @pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.long), "quorum"])
    def target(self, rabbitmq: RabbitServer, request: pytest.FixtureRequest) -> Iterator[QueuesUnderTest]:
        queues = [rabbitmq.queue(quorum=request.param == "quorum") for _ in range(2)]
        with TcpProxy(rabbitmq.port) as proxy:
            options = {"host": "127.0.0.1", "port": str(proxy.port), "queues": ",".join(queues)}
            yield QueuesUnderTest(
                lambda: RabbitSource(RabbitSettings.of(options)),
                lambda queue, ids: send(rabbitmq, queue, *ids),
                proxy.cut,
            )
