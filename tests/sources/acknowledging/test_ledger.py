"""The ledger: the rules J01 to J10, and a broker that delivers again what a crash left unacknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjet.sources.acknowledging.ledger import (
    ACKNOWLEDGED_FOR,
    RESTORED_FOR,
    Ledger,
    LedgerState,
    MissingIdError,
)


def received(ledger: Ledger, *ids: str | None, now: int = 0) -> list[str | None]:
    """Those that are not dropped."""
    first = ledger.position
    return [ids[position - first] for position in ledger.receive(ids, now)]


def acknowledged(ledger: Ledger, position: int, now: int = 0) -> int:
    """How many messages the broker hears of."""
    due = ledger.due(position)
    ledger.acknowledge(position, now)
    return due


def restarted(state: LedgerState, *, identified: bool = True) -> Ledger:
    ledger = Ledger(identified=identified)
    ledger.restore(state)
    return ledger


def test_j01_what_was_decided_and_not_acknowledged_is_dropped() -> None:
    ledger = Ledger()
    assert received(ledger, "m1", "m2") == ["m1", "m2"]
    ledger = restarted(ledger.snapshot(ledger.position))
    assert received(ledger, "m1", "m2", "m3") == ["m3"]
    # All three: the broker has not heard of any.
    assert ledger.snapshot(ledger.position) == LedgerState(5, ["m1", "m2", "m3"])


def test_j02_what_was_not_decided_comes_again() -> None:
    ledger = Ledger()
    before = ledger.snapshot(0)
    received(ledger, "m1", "m2")
    assert received(restarted(before), "m1", "m2", "m3") == ["m1", "m2", "m3"]


def test_j03_restored_ids_stay_in_snapshots_until_they_expire() -> None:
    ledger = restarted(LedgerState(2, ["m1", "m2"]))
    assert received(ledger, "m3") == ["m3"]
    assert ledger.snapshot(3) == LedgerState(3, ["m3", "m1", "m2"])
    assert acknowledged(ledger, 3) == 1
    assert acknowledged(ledger, 3, now=ACKNOWLEDGED_FOR) == 0
    received(ledger, "m4", now=RESTORED_FOR - 1)
    assert ledger.snapshot(4) == LedgerState(4, ["m4", "m1", "m2"])
    received(ledger, "m5", now=RESTORED_FOR)
    assert ledger.snapshot(5) == LedgerState(5, ["m4", "m5"])
    assert ledger.held == 2


def test_j05_only_the_first_copy_of_a_restored_id_is_dropped() -> None:
    ledger = restarted(LedgerState(1, ["m1"]))
    assert received(ledger, "m1", "m1") == ["m1"]


def test_j05_copies_within_a_run_are_messages() -> None:
    ledger = Ledger()
    assert received(ledger, "m1", "m1") == ["m1", "m1"]
    assert ledger.snapshot(2) == LedgerState(2, ["m1"])


def test_j06_restored_ids_expire() -> None:
    ledger = restarted(LedgerState(1, ["m1"]))
    received(ledger, "m9", now=0)
    assert received(ledger, "m1", now=RESTORED_FOR) == ["m1"]


def test_j07_only_what_the_epoch_holds_is_acknowledged() -> None:
    ledger = Ledger()
    received(ledger, "m1", "m2")
    barrier = ledger.position
    received(ledger, "m3")
    assert ledger.snapshot(barrier) == LedgerState(2, ["m1", "m2"])
    assert acknowledged(ledger, barrier) == 2
    # A commit that is repeated.
    assert acknowledged(ledger, barrier) == 0
    assert ledger.unacknowledged == 1


def test_acknowledged_ids_are_kept_for_a_while() -> None:
    ledger = Ledger(most_acknowledged=3)
    received(ledger, "m1", "m2", "m3", "m4", "m5")
    acknowledged(ledger, 2, now=100)
    assert ledger.snapshot(3) == LedgerState(3, ["m3", "m1", "m2"])
    acknowledged(ledger, 3, now=200)
    acknowledged(ledger, 3, now=100 + ACKNOWLEDGED_FOR)
    assert ledger.snapshot(3) == LedgerState(3, ["m3"])
    assert acknowledged(ledger, 5, now=300 + ACKNOWLEDGED_FOR) == 2
    received(ledger, "m6")
    acknowledged(ledger, 6, now=300 + ACKNOWLEDGED_FOR)
    # Of four the newest three.
    assert ledger.snapshot(6) == LedgerState(6, ["m4", "m5", "m6"])
    # The broker was killed and has forgotten what it had confirmed.
    ledger.reconnect()
    assert received(ledger, "m6", "m5", "m7", "m4") == ["m7"]


def test_j08_with_at_least_once_nothing_is_dropped() -> None:
    ledger = Ledger(identified=False)
    assert received(ledger, "m1", "m2") == ["m1", "m2"]
    assert ledger.snapshot(2) == LedgerState(2, [])
    # Nor what a run with exactly-once has left.
    assert received(restarted(LedgerState(2, ["m1"]), identified=False), "m1") == ["m1"]
    assert acknowledged(ledger, 2) == 2


@pytest.mark.parametrize("id_", [None, ""])
def test_j09_a_message_without_an_id_is_an_error_in_exactly_once_only(id_: str | None) -> None:
    ledger = Ledger()
    with pytest.raises(MissingIdError, match=r'no id.*option\("processingGuarantee", "at-least-once"\)'):
        ledger.receive([id_], 0)
    assert ledger.position == 0
    assert Ledger(identified=False).receive([id_], 0) == [0]


def test_what_was_not_received_cannot_be_acknowledged() -> None:
    with pytest.raises(ValueError, match=r"position 1 .* only 0 messages"):
        Ledger().due(1)


@dataclass
class Broker:
    """A queue that delivers again, in another order, what its consumer had not acknowledged when it was lost."""

    random: Random
    ready: list[str]
    delivered: list[str] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)

    def deliver(self) -> str:
        self.delivered.append(self.ready.pop(0))
        return self.delivered[-1]

    def acknowledge(self, count: int) -> None:
        self.confirmed += self.delivered[:count]
        del self.delivered[:count]

    def crash(self) -> None:
        """It may forget whatever it has confirmed since it was last killed."""
        forgotten = self.random.randint(0, len(self.confirmed))
        self.random.shuffle(self.confirmed)
        self.delivered += self.confirmed[:forgotten]
        self.confirmed = []

    def lose_consumer(self) -> None:
        self.random.shuffle(self.delivered)
        self.ready = self.delivered + self.ready
        self.delivered = []


@dataclass
class Query:
    """A query that reads a broker, in the steps of a driver, which may crash between any two."""

    broker: Broker
    ledger: Ledger = field(default_factory=Ledger)
    record: LedgerState = field(default_factory=lambda: LedgerState(0, []))
    spool: dict[int, str] = field(default_factory=dict)
    planned: int = 0
    decided: list[str] = field(default_factory=list)

    def read(self) -> None:
        if self.broker.ready:
            message, position = self.broker.deliver(), self.ledger.position
            if self.ledger.receive([message], now=0):
                self.spool[position] = message

    def plan(self) -> None:
        """What arrives from here on is for a later epoch."""
        self.planned = self.ledger.position

    def decide(self) -> None:
        self.decided += [self.spool.pop(position) for position in sorted(self.spool) if position < self.planned]
        self.record = self.ledger.snapshot(self.planned)

    def acknowledge(self) -> None:
        self.broker.acknowledge(acknowledged(self.ledger, self.record.position))

    def acknowledge_unheard(self) -> None:
        """The connection is lost before the broker's answer comes."""
        self.broker.acknowledge(self.ledger.due(self.record.position))
        self.reconnect()

    def kill_broker(self) -> None:
        self.broker.crash()
        self.reconnect()

    def reconnect(self) -> None:
        self.broker.lose_consumer()
        self.ledger.reconnect()

    def crash(self) -> None:
        self.broker.lose_consumer()
        self.ledger = restarted(self.record)
        self.spool, self.planned = {}, self.record.position


Step = Callable[[Query], None]
STEPS = (
    *(Query.read, Query.read, Query.plan, Query.decide),
    *(Query.acknowledge, Query.acknowledge_unheard, Query.reconnect, Query.kill_broker, Query.crash),
)


@settings(max_examples=1000, deadline=None)
@given(random=st.randoms(use_true_random=False), steps=st.lists(st.sampled_from(STEPS), max_size=60))
def test_j10_every_message_is_decided_once_whatever_crashes(
    random: Random, steps: list[Callable[[Query], None]]
) -> None:
    messages = [f"m{number}" for number in range(12)]
    query = Query(Broker(random, list(messages)))
    for step in (*steps, Query.crash):
        step(query)
    while query.broker.ready:
        query.read()
    for step in (Query.plan, Query.decide, Query.acknowledge):
        step(query)
    assert sorted(query.decided) == sorted(messages)
    assert query.broker.delivered == []
    assert query.ledger.unacknowledged == 0


def test_of_a_message_that_was_sent_twice_the_decided_copy_is_dropped() -> None:
    ledger = Ledger()
    received(ledger, "m1", "m1")
    ledger.reconnect()
    assert ledger.snapshot(1) == LedgerState(1, ["m1"])


def test_a_lost_connection_loses_and_repeats_nothing() -> None:
    ledger = Ledger()
    received(ledger, "m1", "m2", "m3")
    ledger.reconnect()
    # None of these can be acknowledged any more.
    assert acknowledged(ledger, 2) == 0
    # m3 is not decided: the next run must not drop it.
    assert ledger.snapshot(2) == LedgerState(2, ["m1", "m2"])
    assert received(ledger, "m2", "m3", "m4") == ["m4"]
    assert ledger.snapshot(2) == LedgerState(2, ["m2", "m1"])
    assert ledger.snapshot(3) == LedgerState(3, ["m2", "m3", "m1"])
    assert acknowledged(ledger, 5) == 2
    assert ledger.snapshot(6) == LedgerState(6, ["m4", "m2", "m3", "m1"])
