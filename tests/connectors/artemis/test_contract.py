"""The contract of acknowledging sources, passed by that of Artemis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.artemis.source import ArtemisSource
from sparkjet.connectors.artemis.source_settings import ArtemisSettings
from sparkjet.testing.acknowledging_contract import QueuesUnderTest
from tests.servers.artemis import PASSWORD, USER
from tests.servers.tcp_proxy import TcpProxy
from tests.sources.acknowledging.broker_contract import BrokerContract

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer


class TestArtemis(BrokerContract):
    @pytest.fixture
    def target(self, artemis: ArtemisServer) -> Iterator[QueuesUnderTest]:
        queues = [artemis.queue() for _ in range(2)]

        def send(queue: str, ids: Sequence[str]) -> None:
            with artemis.client() as client:
                for each in ids:
                    client.send(queue, f"body of {each}", number=each)

        with TcpProxy(artemis.port) as proxy:
            options = {"host": "127.0.0.1", "port": str(proxy.port), "queues": ",".join(queues), "idProperty": "number"}
            settings = ArtemisSettings.of({**options, "user": USER, "password": PASSWORD})
            yield QueuesUnderTest(lambda: ArtemisSource(settings), send, proxy.cut)
