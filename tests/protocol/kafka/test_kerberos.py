"""Brokers that let only users of Kerberos in: runs where librdkafka has GSSAPI, by the Python that it was built for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.source import KafkaStreamReader
from tests.protocol.driver import Orders
from tests.protocol.kafka.checks import Driver, check, finish
from tests.protocol.kafka.driver import STAGED, place
from tests.servers.kafka import KafkaServer
from tests.servers.kerberos import Kerberos
from tests.servers.programs import NoProgramError
from tests.sources.feed import read, values

pytestmark = [pytest.mark.crash, pytest.mark.long]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaServer]:
    try:
        realm = Kerberos()
    except NoProgramError as error:
        pytest.skip(str(error))
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    with realm, KafkaServer(kerberos=realm) as running:
        yield running


def test_what_killed_drivers_publish_is_read_once(server: KafkaServer, tmp_path: Path) -> None:
    topic = server.topic(partitions=2)
    orders = Orders(tmp_path, place(server.by_kerberos(), topic), way=STAGED)
    for epoch, point in ((1, "decided"), (2, "first committed")):
        with Driver(replace(orders, stop_at=point, stop_in=epoch)) as driver:
            driver.reached()
            driver.kill()
    with Driver(replace(orders, stop_at="first committed", stop_in=3)) as driver:
        driver.reached()
        server.restart()
        driver.go_on()
        assert driver.ended() is None
    finish(orders)
    # sparkjet's own client has no Kerberos.
    check(server, replace(orders, dsn=place(server.client(), topic)))
    given = {f"kafka.{name}": value for name, value in server.by_kerberos().items()}
    source = KafkaStreamReader(KafkaSourceSettings.of({**given, "subscribe": topic, "startingOffsets": "earliest"}))
    assert sorted(int(each or b"") for each in values(read(source)[0])) == list(range(10, 10 + 10 * orders.epochs))
