"""Hanging transactions: missing end markers are found and rewritten, and other producers' are left alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.markers import MarkerState, rewrite_lost_markers
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
    """Check once; returns how many markers were written."""
    seen(broker)
    return broker.asked.count(MARK)


def test_a_missing_end_marker_is_rewritten(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert look(broker) == 1
    assert (
        f"'{OURS}' is CompleteCommit, but the coordinator's end marker was missing on the partition t-0" in caplog.text
    )


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(PRODUCERS, producers(), id="nothing is open"),
        pytest.param(LIST, listing(), id="its coordinator has not ended it"),
        pytest.param(LIST, listing("theirs", state="CompleteCommit", producer=PRODUCER), id="not ours"),
        pytest.param(LIST, listing(OURS, state="CompleteCommit", producer=PRODUCER + 1), id="of another producer"),
    ],
)
def test_a_transaction_that_does_not_hang_is_left_alone(broker: Broker, request_: int, answer: bytes) -> None:
    broker.answers[request_] = lambda: answer
    assert look(broker) == 0


def test_a_marker_that_arrives_in_the_meantime_is_not_rewritten(broker: Broker) -> None:
    broker.answers[PRODUCERS] = in_turn(producers(PRODUCER), producers())
    assert look(broker) == 0


def test_a_topic_that_was_deleted_holds_nothing_up(broker: Broker) -> None:
    broker.answers[METADATA] = lambda: metadata(broker.port)
    assert look(broker) == 0


@pytest.mark.logs_errors
def test_a_user_who_may_not_write_markers_is_told_what_to_do(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = 31
    broker.answers[MARK] = lambda: marked(forbidden)
    assert look(broker) == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text
    assert "ClusterAction" in caplog.text


def test_a_transaction_that_has_begun_since_is_not_taken_for_the_hanging_one(broker: Broker) -> None:
    later = producers(PRODUCER, epoch=4)
    broker.answers[PRODUCERS] = in_turn(producers(PRODUCER), later)
    assert look(broker) == 0


FORBIDDEN = 29


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([producers()], MarkerState(all_ended=True, none_open=True)),
        # On its way, usually for some milliseconds.
        ([producers(PRODUCER), producers(PRODUCER), producers()], MarkerState(all_ended=True, none_open=True)),
        ([producers(7)], MarkerState(all_ended=True, none_open=False)),
        ([producers(PRODUCER)], MarkerState(all_ended=False, none_open=False)),
        ([producers(code=FORBIDDEN)], MarkerState(all_ended=False, none_open=False)),
    ],
    ids=["ended", "ended in a moment", "others are open", "not ended", "may not be asked"],
)
def test_the_state_of_end_markers_in_the_partitions(
    broker: Broker, answers: list[bytes], expected: MarkerState
) -> None:
    broker.answers |= {PRODUCERS: in_turn(*answers), LIST: listing}
    assert seen(broker, PRODUCER) == expected


def test_a_rewritten_marker_counts_as_the_end(broker: Broker) -> None:
    assert seen(broker, PRODUCER) == MarkerState(all_ended=True, none_open=True)
    assert broker.asked.count(MARK) == 1
