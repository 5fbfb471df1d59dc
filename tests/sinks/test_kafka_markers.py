"""Ends that a coordinator has forgotten to tell a partition: found, told once more, and nobody else's touched."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sparkjet.sinks.kafka.access import Access
from sparkjet.sinks.kafka.cluster import Cluster
from sparkjet.sinks.kafka.markers import tell_forgotten
from tests.sinks.brokers import (
    LIST,
    MARK,
    METADATA,
    PRODUCER,
    PRODUCERS,
    Broker,
    in_turn,
    listing,
    marked,
    metadata,
    producers,
)

OURS = "sparkjet/q/results/000001-000000007-0/00000-1"
WHERE = ("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port, topic=("t", 0)),
            PRODUCERS: lambda: producers(PRODUCER),
            LIST: lambda: listing(OURS, state="CompleteCommit", producer=PRODUCER),
            MARK: lambda: marked(0),
        }
        yield made


def look(broker: Broker) -> int:
    """Look once; how often something was told."""
    with Cluster(Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), 0.5) as cluster:
        tell_forgotten(cluster, [WHERE], "sparkjet/q/")
    return broker.asked.count(MARK)


def test_what_is_complete_and_still_open_is_told(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert look(broker) == 1
    assert f"t-0 had not been told that '{OURS}' is CompleteCommit" in caplog.text


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(PRODUCERS, producers(), id="nothing is open"),
        pytest.param(LIST, listing(), id="its coordinator has not ended it"),
        pytest.param(LIST, listing("theirs", state="CompleteCommit", producer=PRODUCER), id="not ours"),
        pytest.param(LIST, listing(OURS, state="CompleteCommit", producer=PRODUCER + 1), id="of another producer"),
    ],
)
def test_what_is_not_forgotten_is_left_alone(broker: Broker, request_: int, answer: bytes) -> None:
    broker.answers[request_] = lambda: answer
    assert look(broker) == 0


def test_what_is_told_in_the_meantime_is_not_told_again(broker: Broker) -> None:
    broker.answers[PRODUCERS] = in_turn(producers(PRODUCER), producers())
    assert look(broker) == 0


def test_a_topic_that_was_deleted_holds_nothing_up(broker: Broker) -> None:
    broker.answers[METADATA] = lambda: metadata(broker.port)
    assert look(broker) == 0


def test_who_may_not_tell_is_told_what_to_do(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = 31
    broker.answers[MARK] = lambda: marked(forbidden)
    assert look(broker) == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text
    assert "ClusterAction" in caplog.text
