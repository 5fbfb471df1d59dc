"""The contract of sources that acknowledge messages, as a suite that every source passes, including yours.

Inherit :class:`AcknowledgingContract` in a pytest test class and give it a fixture ``target``::

    class TestMySource(AcknowledgingContract):
        @pytest.fixture
        def target(self):
            queues = new_empty_queues(2)
            return QueuesUnderTest(make=lambda: MySource(queues), send=send, cut=end_all_connections)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message
from sparkjet.sources.acknowledging.ledger import Ledger, LedgerState

RESTARTS = 25
"""Restarts; more than the deliveries after which brokers drop a message or put it elsewhere by default."""
WITHIN = 60.0
"""Seconds within which a broker must have delivered, or a lost connection be noticed."""
SEEDS = 3
STEPS = 40


@dataclass
class QueuesUnderTest:
    """Two empty queues, a source that reads both, and ways to fill them and to cut its connection."""

    make: Callable[[], AcknowledgingSource]
    """Creates a source that has not connected yet."""
    send: Callable[[str, Sequence[str]], None]
    """Sends messages with these ids to a queue; returns when they are there."""
    cut: Callable[[], None] | None = None
    """Ends the connection of the source as a failing network or broker would; None if it has none."""


@contextmanager
def opened(target: QueuesUnderTest) -> Iterator[AcknowledgingSource]:
    """A connected source."""
    source = target.make()
    source.open()
    try:
        yield source
    finally:
        source.close()


def received(source: AcknowledgingSource, count: int) -> list[Message]:
    """This many messages, after waiting for them; the test fails if there are fewer."""
    found: list[Message] = []
    deadline = time.monotonic() + WITHIN
    while len(found) < count:
        found += source.receive(count - len(found), 0.1)
        if time.monotonic() > deadline:
            pytest.fail(f"{count} messages were expected, {len(found)} have come")
    return found


def ids(messages: Sequence[Message]) -> list[str | None]:
    """The ids of messages, in ascending order: brokers redeliver in any order."""
    return sorted((each.id for each in messages), key=str)


def names(first: int, end: int) -> list[str]:
    """Ids of messages."""
    return [f"m{number:03}" for number in range(first, end)]


class AcknowledgingContract:
    """Tests that each source's test class inherits; it provides the fixture ``target``."""

    def test_messages_come_with_their_queues_and_values(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            assert source.receive(10, 0) == []
            first, second = source.queues
            target.send(first, names(0, 3))
            target.send(second, names(3, 5))
            messages = received(source, 5)
            assert ids(messages) == names(0, 5)
            assert sorted(each.queue for each in messages) == sorted([first] * 3 + [second] * 2)
            assert len({len(each.values) for each in messages}) == 1

    def test_no_more_come_than_are_asked_for(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            target.send(source.queues[0], names(0, 5))
            assert len(received(source, 1)) == 1
            assert list(source.receive(0, 0)) == []
            assert len(source.receive(2, 0.1)) <= 2

    def test_what_is_not_acknowledged_comes_again(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            target.send(source.queues[0], names(0, 4))
            received(source, 4)
            source.acknowledge(1)
        with opened(target) as source:
            again = received(source, 3)
            assert ids(again) == names(1, 4)
            # A message said to be delivered for the first time is not compared with earlier ones.
            assert all(each.redelivered for each in again)
            assert source.receive(1, 0.2) == []
            source.acknowledge(3)
        with opened(target) as source:
            assert source.receive(1, 0.2) == []

    def test_a_message_that_nobody_can_handle_comes_again_and_is_never_given_up(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            target.send(source.queues[0], names(0, 1))
            received(source, 1)
        for _ in range(RESTARTS):
            with opened(target) as source:
                assert ids(received(source, 1)) == names(0, 1)
        with opened(target) as source:
            received(source, 1)
            source.acknowledge(1)
        with opened(target) as source:
            assert source.receive(1, 0.2) == []

    def test_the_oldest_are_acknowledged_whatever_their_queue(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            first, second = source.queues
            target.send(first, names(0, 2))
            target.send(second, names(2, 4))
            kept = received(source, 4)[3:]
            source.acknowledge(3)
        with opened(target) as source:
            assert ids(received(source, 1)) == ids(kept)

    def test_what_nobody_was_given_is_ready(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            first, second = source.queues
            assert source.ready() == {first: 0, second: 0}
            target.send(second, names(0, 3))
            assert source.ready() == {first: 0, second: 3}
            received(source, 1)
            assert source.ready() == {first: 0, second: 2}
            received(source, 2)
            source.acknowledge(3)
            assert source.ready() == {first: 0, second: 0}

    def test_it_is_not_alone_while_somebody_else_has_messages(self, target: QueuesUnderTest) -> None:
        with opened(target) as source, opened(target) as other:
            target.send(source.queues[0], names(0, 2))
            received(other, 1)
            source.ready()
            assert not source.alone

    def test_it_may_be_closed_twice_and_opened_again(self, target: QueuesUnderTest) -> None:
        with opened(target) as source:
            target.send(source.queues[0], names(0, 1))
            received(source, 1)
            source.close()
            source.close()
            source.open()
            assert ids(received(source, 1)) == names(0, 1)

    def test_a_lost_connection_says_so_and_its_messages_come_again(self, target: QueuesUnderTest) -> None:
        if target.cut is None:
            pytest.skip("it has no connection that can be lost")
        with opened(target) as source:
            target.send(source.queues[0], names(0, 3))
            received(source, 2)
            target.cut()
            with pytest.raises(ConnectionLostError):
                _until_lost(source)
            source.open()
            again = received(source, 3)
            assert ids(again) == names(0, 3)
            assert all(each.redelivered for each in again if each.id != names(0, 3)[-1])

    def test_an_acknowledgement_that_nobody_hears_says_so(self, target: QueuesUnderTest) -> None:
        if target.cut is None:
            pytest.skip("it has no connection that can be lost")
        with opened(target) as source:
            target.send(source.queues[0], names(0, 3))
            received(source, 3)
            target.cut()
            with pytest.raises(ConnectionLostError):
                source.acknowledge(2)
            source.open()
            assert ids(received(source, 3)) == names(0, 3)

    @pytest.mark.parametrize("seed", range(SEEDS))
    def test_every_message_is_decided_once_whatever_crashes(self, target: QueuesUnderTest, seed: int) -> None:
        run = _Run(target, Random(seed))  # noqa: S311 - the same at every run
        try:
            for _ in range(STEPS):
                run.step()
            run.finish()
        finally:
            run.source.close()
        assert sorted(run.decided, key=str) == sorted(run.sent)


def _until_lost(source: AcknowledgingSource) -> None:
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        source.receive(0, 0.1)


@dataclass
class _Run:
    """A query in the steps of a driver, which may end between any two."""

    target: QueuesUnderTest
    random: Random
    ledger: Ledger = field(default_factory=Ledger)
    record: LedgerState = field(default_factory=lambda: LedgerState(0))
    spool: dict[int, str | None] = field(default_factory=dict)
    decided: list[str | None] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = self.target.make()
        self._open()

    def step(self) -> None:
        steps = [self._send, self._read, self._read, self._decide, self._decide, self._acknowledge, self._restart]
        if self.target.cut is not None:
            steps.append(self._cut)
        try:
            self.random.choice(steps)()
        except ConnectionLostError:
            self.ledger.disconnect(0)
            self._open()

    def finish(self) -> None:
        """Read and acknowledge everything."""
        while len(self.decided) < len(self.sent):
            self._accept(received(self.source, 1))
            self._decide()
            self._acknowledge()
        self._accept(self.source.receive(1000, 0.2))
        assert not self.spool

    def _send(self) -> None:
        new = names(len(self.sent), len(self.sent) + self.random.randint(1, 5))
        self.target.send(self.random.choice(self.source.queues), new)
        self.sent += new

    def _read(self) -> None:
        self._accept(self.source.receive(self.random.randint(1, 4), 0.05))

    def _accept(self, messages: Sequence[Message]) -> None:
        self.ledger.receive(messages, self._hold)

    def _hold(self, messages: Sequence[Message]) -> None:
        for position, message in enumerate(messages, self.ledger.position):
            self.spool[position] = message.id

    def _decide(self) -> None:
        self.decided += [self.spool.pop(position) for position in sorted(self.spool)]
        self.record = self.ledger.snapshot(self.ledger.position)

    def _acknowledge(self) -> None:
        due = self.ledger.due(self.record.position)
        if due:
            self.source.acknowledge(due)
        self.ledger.acknowledge(due, 0)

    def _restart(self) -> None:
        self.source.close()
        self.source = self.target.make()
        self.ledger, self.spool = Ledger(), {}
        self.ledger.restore(self.record, 0)
        self._open()

    def _open(self) -> None:
        self.source.open()
        self.ledger.connect(self.source.broker, round(self.source.notices_within * 1e6), self.source.queues)

    def _cut(self) -> None:
        assert self.target.cut is not None
        self.target.cut()
        _until_lost(self.source)
