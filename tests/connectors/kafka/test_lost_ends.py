"""Ends that a killed coordinator has lost: written once their id is fenced, and only where it is known how it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.ends import PartitionEnds
from sparkjet.connectors.kafka.lost_ends import write_lost_ends
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.options import Options
from tests.sinks.brokers import (
    COORDINATOR,
    DESCRIBE,
    INIT,
    LIST,
    MARK,
    METADATA,
    PRODUCER,
    PRODUCERS,
    Broker,
    coordinator,
    described,
    error,
    in_turn,
    listing,
    marked,
    metadata,
    producers,
)

OURS = "sparkjet/q/results/000001.0-aa/0"
FENCED = described("Empty", epoch=4)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port, topic=("t", 0)),
            COORDINATOR: lambda: coordinator(made.port),
            PRODUCERS: lambda: producers(PRODUCER, epoch=3),
            LIST: lambda: listing(OURS, state="CompleteCommit", producer=PRODUCER),
            DESCRIBE: in_turn(described("CompleteCommit", epoch=3), FENCED),
            INIT: lambda: error(0),
            MARK: lambda: marked(0),
        }
        yield made


def asked(broker: Broker) -> tuple[int, int]:
    """How often an id was fenced, and an end written."""
    with Cluster(Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), 0.5) as cluster:
        write_lost_ends(cluster, [("t", 0)], "sparkjet/q/results/", 5.0)
    return broker.asked.count(INIT), broker.asked.count(MARK)


def test_a_lost_end_is_written_once_its_id_is_fenced(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert asked(broker) == (1, 1)
    assert broker.asked.index(INIT) < broker.asked.index(MARK)
    assert f"'{OURS}' is CompleteCommit, but the coordinator's end was missing on the partition t-0" in caplog.text


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(PRODUCERS, in_turn(producers()), id="nothing is open"),
        pytest.param(PRODUCERS, in_turn(producers(PRODUCER), producers()), id="it has come since"),
        pytest.param(PRODUCERS, in_turn(producers(PRODUCER, epoch=2)), id="of an earlier epoch, committed or not"),
        pytest.param(LIST, in_turn(listing("x", state="CompleteCommit", producer=PRODUCER)), id="not ours"),
        pytest.param(LIST, in_turn(listing(OURS, producer=PRODUCER)), id="its owner may still commit it"),
        pytest.param(LIST, in_turn(listing(OURS, state="Empty", producer=PRODUCER)), id="nobody knows how it ended"),
        pytest.param(DESCRIBE, in_turn(described("Ongoing", epoch=3)), id="another one has begun since"),
    ],
)
def test_what_is_not_known_to_be_lost_is_left_alone(broker: Broker, request_: int, answer: Callable[[], bytes]) -> None:
    broker.answers[request_] = answer
    assert asked(broker) == (0, 0)


def test_a_producer_that_was_initialized_by_another_in_between_keeps_its_transaction(broker: Broker) -> None:
    broker.answers[DESCRIBE] = in_turn(described("CompleteCommit", epoch=3), described("Empty", epoch=5))
    assert asked(broker) == (1, 0)


def test_what_was_rolled_back_was_so_by_the_next_epoch_of_its_producer(broker: Broker) -> None:
    broker.answers[LIST] = lambda: listing(OURS, state="CompleteAbort", producer=PRODUCER)
    broker.answers[DESCRIBE] = in_turn(described("CompleteAbort", epoch=4), described("Empty", epoch=5))
    assert asked(broker) == (1, 1)


def test_a_coordinator_that_is_writing_ends_or_has_just_started_is_waited_for(broker: Broker) -> None:
    ending = listing(OURS, state="PrepareCommit", producer=PRODUCER)
    broker.answers[LIST] = in_turn(listing(), ending, ending, listing(OURS, state="CompleteCommit", producer=PRODUCER))
    assert asked(broker) == (1, 1)
    assert broker.asked.count(LIST) == 4


def test_what_others_have_open_and_this_user_may_not_see_is_waited_for_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.answers[LIST] = listing
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "kafka.log_level": "0"}
    ends = PartitionEnds(StagedSettings.of(Options(given)))
    monkeypatch.setattr(ends, "are_read", lambda *_: False)
    monkeypatch.setattr("sparkjet.connectors.kafka.ends.ANSWERS", 0.1)

    def looks(*, is_routine: bool) -> int:
        before = broker.asked.count(LIST)
        ends.write_lost([("t", 0)], "q", "results", is_routine=is_routine)
        return broker.asked.count(LIST) - before

    assert looks(is_routine=True) > 1
    assert looks(is_routine=True) == 1
    # After that an id is initialized, and its coordinator forgets.
    assert looks(is_routine=False) > 1
    broker.answers[LIST] = lambda: listing(OURS, producer=PRODUCER)
    assert looks(is_routine=True) == 1
    broker.answers[LIST] = listing
    assert looks(is_routine=True) > 1


@pytest.mark.logs_errors
def test_a_user_who_may_not_write_ends_is_told_what_to_do(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = 31
    broker.answers[MARK] = lambda: marked(forbidden)
    assert asked(broker) == (1, 1)
    assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text
    assert "ClusterAction" in caplog.text
