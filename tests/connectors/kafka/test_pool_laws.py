"""The pool of transactional ids against a model of brokers, drivers and attempts that cannot be stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from sparkjet.connectors.kafka.markers import MarkerState
from sparkjet.connectors.kafka.pool import TaskResult, TransactionPool
from sparkjet.connectors.kafka.transactions import KafkaTransactions
from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.naming import ListedTransaction
from sparkjet.sinks.protocol import Handle, TransactionId
from tests.laws import law

OPEN, COMMITTED, EMPTY = "Ongoing", "CompleteCommit", "Empty"


class Brokers:
    """Transactional ids in coordinators and partitions, with the methods of :class:`KafkaTransactions`."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.ids: dict[str, tuple[int, str]] = {}
        self.unmarked: set[str] = set()
        self.visible: set[tuple[str, int]] = set()
        self.scans = 0
        self.marks = 0.9

    def init(self, name: str) -> None:
        """The first request of every producer, and of every abort."""
        assert name not in self.unmarked, f"{name} would join a transaction whose end marker is missing"
        epoch, state = self.ids.get(name, (-1, EMPTY))
        self.ids[name] = epoch + (2 if state == OPEN else 1), EMPTY

    def write(self, name: str) -> None:
        self.init(name)
        self.ids[name] = self.ids[name][0], OPEN

    def fix(self, transaction: TransactionId, slots: Sequence[tuple[str, int]]) -> Handle | None:
        if any(self.ids[name][1] != OPEN for name, _ in slots):
            raise SinkError
        made = [{"id": name, "producer": 1, "epoch": self.ids[name][0]} for name, _ in slots]
        identity = {"query": transaction.query, "sink": transaction.sink, "takeover": transaction.takeover}
        return {**identity, "epoch": transaction.epoch, "transactions": made} if slots else None

    def commit(self, handle: Handle, _: Callable[[], None]) -> MarkerState:
        marked = self._chance.random() < self.marks
        for slot in handle["transactions"]:
            name, epoch = slot["id"], slot["epoch"]
            if self.ids[name] == (epoch, OPEN):
                self.ids[name] = epoch, COMMITTED
                self.visible.add((name, epoch))
                if not marked:
                    self.unmarked.add(name)
            elif self.ids[name][1] != COMMITTED:
                raise LostTransactionError
            assert (name, epoch) in self.visible, f"{name} is taken for committed and is lost"
        return MarkerState(marked, none_open=marked and not any(state == OPEN for _, state in self.ids.values()))

    def abort_open(self, prefix: str, takeover: int, keep: Collection[str] = ()) -> int:
        self.scans += 1
        found = [
            ListedTransaction(name)
            for name, (_, state) in self.ids.items()
            if state == OPEN and name.startswith(prefix)
        ]
        orphans = [each.gid for each in found if each.takeover <= takeover and each.gid not in keep]
        for name in orphans:
            self.init(name)
        return len(orphans)


class World:
    """One query's drivers, one after the other, and the attempts that they have lost track of."""

    def __init__(self, chance: Random, trouble: float) -> None:
        self._chance, self._trouble = chance, trouble
        self.brokers = Brokers(chance)
        self._zombies: set[str] = set()
        self._task = 0
        self._takeover = -1
        self._newest: Handle | None = None
        self.decided: list[Handle] = []
        self._start()

    def run(self, epochs: int) -> None:
        """Runs each epoch until it is decided, then what a successor repeats."""
        for epoch in range(1, epochs + 1):
            attempt = 0
            while not self.epoch(epoch, attempt):
                attempt += 1
        self._start()
        visible = self.brokers.visible
        assert all((slot["id"], slot["epoch"]) in visible for handle in self.decided for slot in handle["transactions"])
        counted = {(slot["id"], slot["epoch"]) for handle in self.decided for slot in handle["transactions"]}
        assert visible == counted

    def _start(self) -> None:
        """A driver takes over, and repeats the commit of the newest record."""
        self._takeover += 1
        # By then the partitions have the markers, or no later transaction uses these ids.
        self.pool = TransactionPool(cast("KafkaTransactions", self.brokers))
        if self._newest is not None:
            self.pool.commit(self._newest, lambda: None)
        self.brokers.abort_open("sparkjet/", self._takeover - 1)

    def epoch(self, epoch: int, attempt: int) -> bool:
        """One attempt at an epoch; returns whether it was decided."""
        transaction = TransactionId("q", "results", self._takeover, epoch, attempt)
        prefix = self.pool.begin(transaction)
        answers = [self._partition(prefix, number) for number in range(self._chance.randint(1, 3))]
        self._haunt()
        fails, handle = self._happens(), None
        try:
            if not fails:
                handle = self.pool.fix(answers)
                self._haunt()
        except SinkError:
            fails = True
        if fails or self._happens():
            # Any attempt of a failed job may continue, whatever it has returned.
            self._zombies |= {answer.name for answer in answers if answer.name is not None}
            if self._happens():
                self._start()
            elif self._chance.random() < 0.5:
                self.pool.abort(transaction)
            return False
        self._newest = handle
        if handle is not None:
            self.decided.append(handle)
            self._haunt()
            if self._happens():
                self._start()
            else:
                self.pool.commit(handle, lambda: None)
        return True

    def _partition(self, prefix: str, number: int) -> TaskResult:
        pooled = f"{prefix}p{number:05d}"
        if not self._happens():
            if self._chance.random() < 0.3:
                return TaskResult(None, 0, is_first=True)
            self.brokers.write(pooled)
            return TaskResult(pooled, 5, is_first=True)
        # A first attempt that Spark has abandoned, before or after it has begun, and a second one.
        if self._chance.random() < 0.5:
            self.brokers.write(pooled)
        self._zombies.add(pooled)
        self._task += 1
        name = f"{pooled}-{self._task}"
        if self._chance.random() < 0.3:
            self._zombies.add(name)
            return TaskResult(None, 0, is_first=False)
        self.brokers.write(name)
        return TaskResult(name, 5, is_first=False)

    def _haunt(self) -> None:
        """Abandoned attempts may begin at any time."""
        for name in sorted(self._zombies):
            if self._chance.random() < 0.3:
                self.brokers.write(name)

    def _happens(self) -> bool:
        return self._chance.random() < self._trouble


@law(300)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.1, 0.4]))
def test_what_is_decided_is_published_whatever_lost_attempts_do(seed: int, trouble: float) -> None:
    World(Random(seed), trouble).run(25)


def test_a_calm_week_needs_one_pool_and_no_scan() -> None:
    world = World(Random(0), trouble=0.0)
    world.brokers.marks = 1.0
    before = world.brokers.scans
    for epoch in range(1, 7 * 24 * 3600 + 1, 60):
        assert world.epoch(epoch, 0)
    assert (len(world.brokers.ids), world.brokers.scans - before) == (6, 0)
