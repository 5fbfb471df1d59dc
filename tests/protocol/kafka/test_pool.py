"""Transactional ids are reused only if nothing irregular happened; irregularities cause scans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.kafka.cluster import Cluster
from tests.protocol.driver import Orders
from tests.protocol.kafka.checks import Driver, check
from tests.protocol.kafka.driver import settings

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def ids(orders: Orders) -> set[str]:
    """Every id of the query that the broker remembers."""
    with Cluster(settings(orders.dsn).access) as cluster:
        return set(cluster.open_transactions(f"sparkjet/{orders.query}/", STATES))


def test_a_calm_query_uses_the_same_ids_forever(kafka: KafkaServer, orders: Orders) -> None:
    calm = replace(orders, epochs=8)
    with Driver(calm) as driver:
        assert driver.ended() is None
    check(kafka, calm)
    # Those of an epoch, of the next one while these are settled, and of one more on a slow machine.
    assert 0 < len(ids(orders)) <= 3 * orders.tasks
