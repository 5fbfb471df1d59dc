"""Orders for drivers without Spark that write into Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.protocol.driver import Orders
from tests.protocol.kafka.driver import STAGED, place

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


@pytest.fixture
def orders(kafka: KafkaServer, tmp_path: Path) -> Orders:
    """Orders for a driver with its own topic and directory."""
    return orders_for(kafka, tmp_path)


def orders_for(server: KafkaServer, home: Path) -> Orders:
    """Orders for a driver on one of several brokers."""
    return Orders(home, place(server.client(), server.topic(partitions=2)), way="kafka")


@pytest.fixture
def staged(kafka: KafkaServer, tmp_path: Path) -> Orders:
    """The same for one whose rows wait in its home."""
    return staged_for(kafka, tmp_path)


def staged_for(server: KafkaServer, home: Path) -> Orders:
    """The same on one of several brokers."""
    return replace(orders_for(server, home), way=STAGED)
