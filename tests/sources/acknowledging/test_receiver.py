"""The receiver: what it reads, when it stops reading, and connections that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkjet.clock import ManualClock
from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.ledger import RESTORED_FOR, Ledger, LedgerState, MissingIdError
from sparkjet.sources.acknowledging.receiver import Counts, Limits, Receiver
from sparkjet.sources.acknowledging.spool import Spool
from tests.sources.acknowledging.queues import SCHEMA, Broker, BrokerSource

LONG = 60.0
"""Seconds that a test waits at most."""


@pytest.fixture
def broker() -> Broker:
    return Broker("orders", "returns")


@pytest.fixture
def running(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    started: list[Receiver] = []

    def start(
        counts: Counts | None = None,
        state: LedgerState | None = None,
        clock: ManualClock | None = None,
        **limits: float,
    ) -> Receiver:
        directory = tmp_path / f"spool{len(started)}"
        directory.mkdir()
        now = (clock or ManualClock(0)).now
        receiver = Receiver(BrokerSource(broker), Spool(directory, SCHEMA), now, Limits(**limits))  # type: ignore[arg-type]
        started.append(receiver)
        ledger = Ledger()
        ledger.restore(state or LedgerState(0, []))
        receiver.start(counts or {}, ledger)
        return receiver

    yield start
    for receiver in started:
        receiver.stop()
    assert list(tmp_path.iterdir()) == []


def bodies(receiver: Receiver, start: int, end: int) -> list[str]:
    return [body for batch in receiver.rows(start, end) for body in batch.column("body").to_pylist()]


def received(receiver: Receiver, position: int) -> Counts:
    """Wait until there are messages up to a position."""
    while sum(receiver.end({}, None).values()) < position:
        receiver.wait(position - 1, LONG)
    return receiver.end({}, None)


def drained(receiver: Receiver, position: int) -> None:
    """Wait until the queues have been found empty, and once more, as acknowledgements come between."""
    assert receiver.wait(position, LONG)
    assert receiver.wait(position, LONG)
    assert sum(receiver.end({}, None).values()) == position


def test_batches_are_ranges_and_have_their_rows_every_time(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1", "m2")
    broker.send("returns", "m3")
    receiver = running()
    assert received(receiver, 3) == {"orders": 2, "returns": 1}
    first = receiver.end({}, 2)
    assert sum(first.values()) == 2
    assert sum(receiver.end(first, 2).values()) == 3
    assert bodies(receiver, 0, 2) + bodies(receiver, 2, 3) == bodies(receiver, 0, 3)
    assert sorted(bodies(receiver, 0, 3)) == ["body of m1", "body of m2", "body of m3"]


def test_nothing_is_acknowledged_before_it_is_due(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1", "m2", "m3")
    receiver = running()
    received(receiver, 3)
    assert len(broker.unacknowledged) == 3
    receiver.acknowledge(2)
    receiver.acknowledge(2)
    drained(receiver, 3)
    assert [message.id for message in broker.unacknowledged] == ["m3"]
    assert bodies(receiver, 0, 9)[-1] == "body of m3"
    assert receiver.end({"orders": 2}, None) == {"orders": 3, "returns": 0}
    receiver.acknowledge(3)
    receiver.stop()
    assert broker.unacknowledged == []
    assert broker.ready() == {"orders": 0, "returns": 0}


def test_it_goes_on_where_the_record_ends(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running({"orders": 4}, LedgerState(4, ["m1"]))
    assert received(receiver, 6) == {"orders": 6, "returns": 0}
    # A range of an earlier run has no rows; of this one, the message that was decided has none.
    assert bodies(receiver, 0, 4) == []
    assert bodies(receiver, 4, 6) == ["body of m2"]
    assert receiver.state(6) == LedgerState(6, ["m1", "m2"])
    receiver.acknowledge(6)
    receiver.stop()
    assert broker.unacknowledged == []


def test_the_record_and_sparks_offset_must_agree(running: Callable[..., Receiver]) -> None:
    with pytest.raises(ValueError, match=r"up to {'orders': 1} .* of position 2"):
        running({"orders": 1}, LedgerState(2, []))


def test_the_broker_keeps_what_is_beyond_the_limit(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", *(f"m{number}" for number in range(5)))
    receiver = running(messages=2)
    received(receiver, 2)
    assert not receiver.wait(2, 0.2)
    assert broker.ready()["orders"] == 3
    assert receiver.reported() == {"orders": 5, "returns": 0}
    receiver.acknowledge(2)
    assert received(receiver, 4) == {"orders": 4, "returns": 0}


def test_a_full_spool_waits_for_epochs(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1")
    receiver = running(bytes=1)
    received(receiver, 1)
    broker.send("orders", "m2")
    assert not receiver.wait(1, 0.2)
    receiver.acknowledge(1)
    assert received(receiver, 2) == {"orders": 2, "returns": 0}


def test_ids_of_many_restarts_hold_it_up_until_they_expire(broker: Broker, running: Callable[..., Receiver]) -> None:
    clock = ManualClock(0)
    broker.send("orders", "m9")
    receiver = running({"orders": 8}, LedgerState(8, [f"m{number}" for number in range(8)]), clock, messages=2)
    assert not receiver.wait(8, 0.2)
    clock.advance(RESTORED_FOR)
    assert received(receiver, 9) == {"orders": 9, "returns": 0}
    assert receiver.state(9) == LedgerState(9, ["m9"])


@pytest.mark.parametrize("refuses", [0, 2])
def test_a_lost_connection_loses_and_repeats_nothing(
    broker: Broker, running: Callable[..., Receiver], refuses: int
) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running()
    received(receiver, 2)
    broker.refuses = refuses
    broker.cut()
    broker.send("orders", "m3")
    # Both come again, take positions, and are dropped.
    assert received(receiver, 5) == {"orders": 5, "returns": 0}
    assert bodies(receiver, 0, 5) == ["body of m1", "body of m2", "body of m3"]
    receiver.acknowledge(5)
    receiver.stop()
    assert broker.ready() == {"orders": 0, "returns": 0}


def test_an_acknowledgement_that_nobody_confirmed_is_no_second_row(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running()
    received(receiver, 2)
    broker.loses_answer = True
    receiver.acknowledge(1)
    # m2 alone comes again; m1 might have.
    assert received(receiver, 3) == {"orders": 3, "returns": 0}
    assert bodies(receiver, 1, 3) == ["body of m2"]
    assert receiver.state(1) == LedgerState(1, ["m1"])


def test_a_message_without_an_id_ends_the_query_and_stays(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", None)
    receiver = running()
    with pytest.raises(MissingIdError):
        receiver.wait(0, LONG)
    with pytest.raises(MissingIdError):
        receiver.end({}, None)
    receiver.stop()
    assert broker.ready()["orders"] == 1


def test_a_broker_that_stays_away_is_given_up(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.refuses = 1_000_000
    receiver = running(patience=0.1)
    with pytest.raises(SourceError, match="the broker cannot be reached: refused"):
        receiver.wait(0, LONG)
