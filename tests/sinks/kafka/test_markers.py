"""Ends that a coordinator has forgotten to tell a partition: found, told once more, and nobody else's touched."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sparkjet.sinks.kafka.access import Access
from sparkjet.sinks.kafka.cluster import Cluster
from sparkjet.sinks.kafka.markers import MarkerState, rewrite_lost_markers
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


def seen(broker: Broker, *ended: int) -> MarkerState:
    with Cluster(Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), 0.5) as cluster:
        return rewrite_lost_markers(cluster, [WHERE], "sparkjet/q/", ended)


def look(broker: Broker) -> int:
    """Look once; how often something was told."""
    seen(broker)
    return broker.asked.count(MARK)


def test_what_is_complete_and_still_open_is_told(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert look(broker) == 1
    assert f"t-0 had not been told that '{OURS}' is CompleteCommit" in "\n".join(caplog.messages)


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


@pytest.mark.logs_errors
def test_who_may_not_tell_is_told_what_to_do(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = 31
    broker.answers[MARK] = lambda: marked(forbidden)
    assert look(broker) == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text
    assert "ClusterAction" in caplog.text


def test_a_transaction_that_was_begun_since_is_not_taken_for_the_one_that_was_forgotten(broker: Broker) -> None:
    later = producers(PRODUCER, epoch=4)
    broker.answers[PRODUCERS] = in_turn(producers(PRODUCER), later)
    assert look(broker) == 0


FORBIDDEN = 29


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([producers()], MarkerState(is_told=True, is_clear=True)),
        # On its way, as a rule for some milliseconds.
        ([producers(PRODUCER), producers(PRODUCER), producers()], MarkerState(is_told=True, is_clear=True)),
        ([producers(7)], MarkerState(is_told=True, is_clear=False)),
        ([producers(PRODUCER)], MarkerState(is_told=False, is_clear=False)),
        ([producers(code=FORBIDDEN)], MarkerState(is_told=False, is_clear=False)),
    ],
    ids=["told", "told in a moment", "others are open", "not told", "may not be asked"],
)
def test_what_the_partitions_know_of_an_end(broker: Broker, answers: list[bytes], expected: MarkerState) -> None:
    broker.answers |= {PRODUCERS: in_turn(*answers), LIST: listing}
    assert seen(broker, PRODUCER) == expected


def test_what_was_told_by_us_is_told(broker: Broker) -> None:
    assert seen(broker, PRODUCER) == MarkerState(is_told=True, is_clear=True)
    assert broker.asked.count(MARK) == 1
