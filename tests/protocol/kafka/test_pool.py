"""Transactional ids are reused only if nothing irregular happened; irregularities cause scans."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sparkjet.sinks.kafka.cluster import Cluster
from tests.protocol.driver import Orders
from tests.protocol.kafka.checks import QUERY, Driver, check
from tests.protocol.kafka.driver import settings

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.crash

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def ids(orders: Orders) -> set[str]:
    """Every id of the query that the broker remembers."""
    with Cluster(settings(orders.dsn).access) as cluster:
        return set(cluster.open_transactions(f"sparkjet/{QUERY}/", STATES))


def test_a_calm_query_uses_the_same_ids_for_ever(kafka: KafkaServer, orders: Orders) -> None:
    calm, before = replace(orders, epochs=8), ids(orders)
    with Driver(calm) as driver:
        assert driver.ended() is None
    check(kafka, calm)
    # Other tests have queries of the same name, whose first ids are the same.
    assert len(ids(orders) - before) <= 2 * orders.tasks
