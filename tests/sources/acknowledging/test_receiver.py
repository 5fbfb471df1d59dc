"""The receiver: what it reads, when it stops reading, and connections that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkjet.clock import ManualClock
from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import Message
from sparkjet.sources.acknowledging.ledger import Expected, Ledger, LedgerState, MissingIdError
from sparkjet.sources.acknowledging.receiver import Counts, Limits, Receiver
from sparkjet.sources.acknowledging.spool import Spool
from tests.faults.waiting import until
from tests.sources.acknowledging.queues import SCHEMA, Broker, BrokerSource
from tests.sources.acknowledging.waiting import until_ended

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
        ledger.restore(state or LedgerState(0), now())
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


def test_a_queue_that_delivers_nothing_of_what_it_has_is_named(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.withholds = True
    broker.send("orders", "m1", "m2")
    clock = ManualClock(0)
    receiver = running(clock=clock, patience=2.0)
    until(lambda: receiver.reported()["orders"] == 2, "a count of the queue")
    receiver.check_delivery()
    clock.advance(2_000_000)
    with pytest.raises(SourceError, match=r"delivered none for 2 s, .*: 'orders' \(2\)\. Such a queue is paused"):
        receiver.check_delivery()
    broker.withholds = False
    received(receiver, 2)
    clock.advance(2_000_000)
    # They are all that it has; and what is not acknowledged could be all that it delivers.
    broker.withholds = True
    broker.send("orders", "m3")
    until(lambda: receiver.reported()["orders"] == 3, "a count of the queue")
    clock.advance(2_000_000)
    receiver.check_delivery()


def test_nothing_is_acknowledged_before_it_is_due(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1", "m2", "m3")
    receiver = running()
    received(receiver, 3)
    assert len(broker.unacknowledged) == 3
    receiver.acknowledge(2)
    receiver.acknowledge(2)
    drained(receiver, 3)
    assert [message.id for message in broker.unacknowledged] == ["m3"]
    assert bodies(receiver, 2, 3) == ["body of m3"]
    assert receiver.end({"orders": 2}, None) == {"orders": 3, "returns": 0}
    receiver.acknowledge(3)
    receiver.stop()
    assert broker.unacknowledged == []
    assert broker.ready() == {"orders": 0, "returns": 0}


def decided(position: int, *ids: str, queue: str = "orders") -> LedgerState:
    """A record's entry of an earlier run."""
    return LedgerState(position, expected=[Expected("", 1000, None, {queue: list(ids)})])


def remembered(receiver: Receiver, position: int) -> list[str]:
    """The ids in the record."""
    expected = receiver.state(position).expected
    return sorted(each for of in expected for ids in of.ids.values() for each in ids)


def test_it_goes_on_where_the_record_ends(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1")
    broker.cut()
    broker.send("orders", "m2")
    broker.unacknowledged += broker.queues["orders"][:1]
    del broker.queues["orders"][0]
    broker.cut()
    receiver = running({"orders": 4}, decided(4, "m1"))
    assert received(receiver, 5) == {"orders": 5, "returns": 0}
    assert bodies(receiver, 4, 5) == ["body of m2"]
    assert remembered(receiver, 5) == ["m1", "m2"]
    receiver.acknowledge(5)
    receiver.stop()
    assert broker.unacknowledged == []
    assert broker.ready() == {"orders": 0, "returns": 0}


def test_rows_that_are_not_there_are_an_error_and_not_an_empty_batch(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running()
    received(receiver, 2)
    with pytest.raises(SourceError, match="messages from 0 to 3, only 2 are in the spool"):
        receiver.rows(0, 3)


def test_the_record_and_sparks_offset_must_agree(running: Callable[..., Receiver]) -> None:
    with pytest.raises(ValueError, match=r"up to {'orders': 1, .* of position 2"):
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


def test_a_lower_limit_than_before_holds_nothing_up(broker: Broker, running: Callable[..., Receiver]) -> None:
    ids = [f"m{number}" for number in range(9)]
    broker.send("orders", *ids)
    first = running()
    received(first, 9)
    state = first.state(8)
    first.stop()
    # Eight of nine are decided, and come again; two fit.
    second = running({"orders": 8}, state, messages=2)
    assert received(second, 9) == {"orders": 9, "returns": 0}
    assert bodies(second, 8, 9) == ["body of m8"]
    assert [message.id for message in broker.unacknowledged] == ["m8"]


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
    # Both come again, and are dropped.
    assert received(receiver, 3) == {"orders": 3, "returns": 0}
    assert bodies(receiver, 0, 3) == ["body of m1", "body of m2", "body of m3"]
    receiver.acknowledge(3)
    receiver.stop()
    assert broker.ready() == {"orders": 0, "returns": 0}


def test_an_unconfirmed_acknowledgement_makes_no_second_row(broker: Broker, running: Callable[..., Receiver]) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running()
    received(receiver, 2)
    broker.loses_answer = True
    receiver.acknowledge(1)
    # m2 alone comes again; m1 might have.
    broker.send("orders", "m3")
    assert received(receiver, 3) == {"orders": 3, "returns": 0}
    assert bodies(receiver, 1, 3) == ["body of m2", "body of m3"]
    assert remembered(receiver, 1) == ["m1"]


def test_what_an_epoch_decides_that_is_longer_than_a_connection_is_acknowledged_on_the_next(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.send("orders", "m1", "m2")
    receiver = running()
    received(receiver, 2)
    broker.cut()
    broker.send("orders", "m3")
    received(receiver, 3)
    # No later epoch is needed for it.
    receiver.acknowledge(2)
    assert [message.id for message in broker.unacknowledged] == ["m3"]


@pytest.mark.parametrize("first", [[], ["m1", "m2"]])
def test_a_connection_that_breaks_at_every_message_is_given_up(
    broker: Broker, running: Callable[..., Receiver], first: list[str]
) -> None:
    broker.send("orders", *first, "poison")
    broker.breaks_at = "poison"
    receiver = running(patience=0.5)
    with pytest.raises(SourceError, match="the broker cannot be reached: cut"):
        until_ended(receiver)


def test_a_message_that_its_columns_cannot_hold_ends_the_query_and_is_named(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.send("orders", "m1")
    broker.queues["orders"].append(Message("m2", "orders", (b"\xff",)))
    receiver = running()
    with pytest.raises(SourceError, match=r"message 'm2' of queue 'orders' cannot be read: column body cannot hold"):
        until_ended(receiver)
    for ask in (lambda: receiver.rows(0, 1), lambda: receiver.state(1), lambda: receiver.end({}, None)):
        with pytest.raises(SourceError, match="'m2'"):
            ask()
    receiver.stop()
    assert broker.ready()["orders"] == 2


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


def test_a_queue_that_is_too_far_ahead_is_not_read_while_another_has_messages(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    broker.send("orders", "m1")
    broker.send("returns", *(f"m{number}" for number in range(2, 6)))
    receiver = running(messages=2)
    received(receiver, 2)
    receiver.align({"orders": 400, "returns": 0}, 300)
    # It has been read to its end, and so has nothing to hold back.
    assert receiver.held().ahead == {}
    broker.send("orders", "m6", "m7")
    receiver.align({"orders": 400, "returns": 0}, 300)
    assert (receiver.held().ahead, receiver.held().slowest) == ({"orders": 400}, "returns")
    until(lambda: broker.held == {"orders"}, "the queue to be held back")
    receiver.acknowledge(2)
    assert received(receiver, 4) == {"orders": 1, "returns": 3}
    # What is lost with the connection comes again; the queue stays held back on the next one.
    broker.cut()
    receiver.acknowledge(3)
    assert received(receiver, 5) == {"orders": 1, "returns": 4}
    # Now all of the other one is here.
    receiver.acknowledge(5)
    assert received(receiver, 7) == {"orders": 3, "returns": 4}
    # Who is within the drift holds nobody; nor does one of which nothing is known.
    broker.send("orders", "m8")
    broker.send("returns", "m9")
    for reached in {"orders": 400, "returns": 100}, {"orders": 400}:
        receiver.align(reached, 300)
        assert receiver.held().ahead == {}
    assert bodies(receiver, 5, 7) == ["body of m6", "body of m7"]


def test_a_queue_is_no_longer_waited_for_when_its_messages_are_gone(
    broker: Broker, running: Callable[..., Receiver]
) -> None:
    receiver = running(patience=0.0)
    broker.withholds = True
    broker.send("orders", "m1")
    broker.send("returns", "m2")
    receiver.align({"orders": 400, "returns": 0}, 300)
    until(lambda: broker.held == {"orders"}, "the queue to be held back")
    # Another consumer took it: nobody plans in between, as a batch with availableNow waits for messages.
    broker.queues["returns"].clear()
    broker.withholds = False
    received(receiver, 1)
    assert broker.held == frozenset()
