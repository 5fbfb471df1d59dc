"""Epochs in Kafka that are missing from the newest record, and what only looks like them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.restored import committed_after
from sparkjet.sinks.protocol import Handle, TransactionId
from tests.sinks.brokers import (
    COORDINATOR,
    DESCRIBE,
    LIST,
    METADATA,
    PRODUCER,
    Broker,
    coordinator,
    described,
    listing,
    metadata,
)

NEWEST = TransactionId("q", "results", 1, 9, 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port),
            COORDINATOR: lambda: coordinator(made.port),
            DESCRIBE: lambda: described("CompleteCommit", epoch=4),
        }
        yield made


def found(broker: Broker, names: list[str], handle: Handle | None = None) -> list[str]:
    broker.answers[LIST] = lambda: listing(*(f"sparkjet/q/results/{name}" for name in names), state="CompleteCommit")
    with Cluster(Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), 0.5) as cluster:
        return [name.removeprefix("sparkjet/q/results/") for name in committed_after(cluster, NEWEST, handle)]


@pytest.mark.parametrize(
    ("name", "is_later"),
    [
        ("000002-000000003-0/p00000", True),
        ("000001-000000010-0/p00000", True),
        ("000001-000000010-0/00000-17", True),
        ("000001-000000009-0/00000-17", False),
        ("000001-000000009-0/p00000", False),
        ("000000-000000012-0/p00000", False),
        ("not-ours", False),
    ],
)
def test_later_takeovers_epochs_and_generations_are_found(broker: Broker, name: str, is_later: bool) -> None:
    assert found(broker, [name]) == ([name] if is_later else [])


A, B, C = "000001-000000005-0/p00000", "000001-000000005-1/p00000", "000001-000000005-1/p00001"


def handle(slot_epoch: int, pool: dict[str, list[int]], takeover: int = 1) -> Handle:
    slot = {"id": f"sparkjet/q/results/{A}", "producer": PRODUCER, "epoch": slot_epoch}
    known: dict[str, Any] = {f"sparkjet/q/results/{name}": numbers for name, numbers in pool.items()}
    return {"takeover": takeover, "epoch": 9, "transactions": [slot], "pool": known}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (handle(4, {B: [PRODUCER, 4]}), []),
        (handle(3, {B: [PRODUCER, 4]}), [A]),
        (handle(4, {B: [PRODUCER, 3]}), [B]),
        # A producer's epochs are limited, after which it gets a new producer id.
        (handle(4, {B: [PRODUCER - 1, 4]}), [B]),
        (handle(4, {}), [B]),
        (handle(3, {}, takeover=0), []),
        (None, []),
    ],
    ids=["as known", "used again", "the other half", "another producer", "not used before", "an earlier run", "none"],
)
def test_later_producers_and_epochs_in_a_generation_are_found(
    broker: Broker, last: Handle | None, expected: list[str]
) -> None:
    assert found(broker, [A, B], last) == expected


def test_what_is_open_or_was_rolled_back_is_of_an_epoch_that_crashed(broker: Broker) -> None:
    broker.answers[DESCRIBE] = lambda: described("Ongoing", epoch=9)
    assert found(broker, [A, B, C], handle(4, {})) == []


def test_a_handle_of_a_version_without_pools_is_compared_by_names(broker: Broker) -> None:
    old = {key: value for key, value in handle(3, {}).items() if key != "pool"}
    assert found(broker, [A, B], old) == []
