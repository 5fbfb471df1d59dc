"""The inbox, in a model of receive, hold, decide, acknowledge and restart: any order of steps, a fault at each.

The broker delivers again whatever was not acknowledged, in another order, at once or when it has noticed; it marks what
it delivers again, and may forget what it has confirmed. The inbox, its ledger and its spool are the real ones.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging import inbox as inbox_module
from sparkjet.sources.acknowledging import ledger as ledger_module
from sparkjet.sources.acknowledging import spool as spool_module
from sparkjet.sources.acknowledging.contract import Message
from sparkjet.sources.acknowledging.inbox import Inbox
from sparkjet.sources.acknowledging.ledger import Ledger, LedgerState
from sparkjet.sources.acknowledging.spool import Spool, UnrepresentableError
from tests.sources.acknowledging.queues import SCHEMA

QUEUES = "a", "b"
MESSAGES = 8
WITHIN = 100
"""Microseconds in which the broker notices a dead client; its clock and ours are one."""
UNWRITTEN = 3 * WITHIN
"""Microseconds after which it has written down what it has confirmed."""
POISON = b"\xff"
PARTS = 3
"""Messages that are received together at most."""


@dataclass
class Consumer:
    """A connection, and what it was given."""

    given: list[Message] = field(default_factory=list)
    lost: int | None = None


@dataclass
class Broker:
    """Queues, consumers of which one is alive, and what it has confirmed, when, and may forget."""

    random: Random
    queues: dict[str, list[Message]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    consumers: list[Consumer] = field(default_factory=lambda: [Consumer()])
    confirmed: list[tuple[int, Message]] = field(default_factory=list)

    def send(self, number: int, id_: str, queue: str) -> None:
        self.queues[queue].append(Message(id_, queue, (f"{number}",), redelivered=False))

    def deliver(self, most: int) -> list[Message]:
        queue = self.queues[self.random.choice(QUEUES)]
        given, queue[:] = queue[:most], queue[most:]
        self.consumers[-1].given += given
        return given

    def acknowledge(self, count: int, now: int) -> None:
        assert count <= len(self.consumers[-1].given)
        self.confirmed += [(now, each) for each in self.consumers[-1].given[:count]]
        del self.consumers[-1].given[:count]

    def lose(self, now: int) -> None:
        """The client is gone, or has another connection; what this one had is elsewhere until that is noticed."""
        self.consumers[-1].lost = now
        self.consumers.append(Consumer())

    def notice(self, until: int) -> None:
        """Put back what consumers have that were lost before."""
        for each in self.consumers[:-1]:
            if each.lost is not None and each.lost <= until:
                self._return(each.given)
                self.consumers.remove(each)

    def forget(self, now: int) -> None:
        """It was killed, and has not written down all that it has confirmed of late."""
        recent = [each for at, each in self.confirmed if at > now - UNWRITTEN]
        self.random.shuffle(recent)
        self._return(recent[: self.random.randint(0, len(recent))])
        self.confirmed = []

    def move(self) -> None:
        """A message has waited for too long, and is a dead letter."""
        first, second = self.queues["a"], self.queues["b"]
        if first and first[0].origin is None:
            message = first.pop(0)
            second.append(message._replace(queue="b", origin="a", redelivered=True))

    def _return(self, messages: Sequence[Message]) -> None:
        again = [each._replace(redelivered=True) for each in messages]
        self.random.shuffle(again)
        for each in again:
            self.queues[each.queue].insert(0, each)


class Rows(Spool):
    """A spool in memory, whose disk may be full: thousands of runs would wait for the real one."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, pa.RecordBatch]] = []
        self.is_full = False

    def append(self, position: int, rows: Sequence[Sequence[Any]]) -> None:
        for number, (body,) in enumerate(rows):
            if body == POISON:
                raise UnrepresentableError(number, "body", body, "poison")
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")
        self._batches.append((position, pa.record_batch({"body": [body for (body,) in rows]})))

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for position, batch in self._batches:
            first, last = max(start, position), min(end, position + len(batch))
            if first < last:
                yield batch.slice(first - position, last - first)

    def remove(self, end: int) -> None:
        self._batches = [(position, batch) for position, batch in self._batches if position + len(batch) > end]


@dataclass
class Query:
    """A query that reads a broker, in the steps of a driver, which may crash between any two."""

    broker: Broker
    now: int = 0
    record: LedgerState = field(default_factory=lambda: LedgerState(0))
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    planned: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUES, 0))
    decided: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin()

    def read(self) -> None:
        messages = self.broker.deliver(self.broker.random.randint(1, PARTS))
        if messages:
            try:
                self.inbox.receive(messages)
            except SourceError:
                self.crash()

    def read_on_a_full_disk(self) -> None:
        messages = self.broker.deliver(PARTS)
        self.spool.is_full = True
        with contextlib.suppress(SourceError):
            self.inbox.receive(messages)
        self.crash()

    def plan(self) -> None:
        """Fix the end of the epoch: messages that arrive from now on are for a later one."""
        self.planned = self.inbox.end(self.counts, self.broker.random.choice([1, 4, None]))

    def decide(self) -> None:
        start, end = sum(self.counts.values()), sum(self.planned.values())
        state = self.inbox.ledger.snapshot(end)
        found = [row for batch in self.inbox.rows(start, end) for row in batch.column("body").to_pylist()]
        assert len(found) == end - start
        self.decided += found
        self.record, self.counts = state, self.planned

    def epoch(self) -> None:
        """All of it, undisturbed."""
        self.plan()
        self.decide()
        self.acknowledge()

    def acknowledge(self) -> None:
        due = self.inbox.ledger.due(self.record.position)
        self.broker.acknowledge(due, self.now)
        self.inbox.ledger.acknowledge(due, self.now)
        self.inbox.remove(self.record.position)

    def acknowledge_unheard(self) -> None:
        """The connection is lost before the broker's answer comes."""
        self.broker.acknowledge(self.inbox.ledger.due(self.record.position), self.now)
        self.reconnect()

    def look(self) -> None:
        ready = {name: len(queue) for name, queue in self.broker.queues.items()}
        self.inbox.ledger.look(ready, self.now, alone=len(self.broker.consumers) == 1)

    def reconnect(self) -> None:
        self.lose_half()
        self.broker.notice(self.now)

    def lose_half(self) -> None:
        """Of a network that swallows packets the broker hears later."""
        self.broker.lose(self.now)
        self.inbox.ledger.disconnect(self.now)
        self._connect()

    def crash(self) -> None:
        self.lose_power()
        self.broker.notice(self.now)

    def lose_power(self) -> None:
        """Of a machine that is gone the broker hears later."""
        self.broker.lose(self.now)
        self._begin()

    def pass_time(self) -> None:
        self.now += WITHIN // 2
        self.broker.notice(self.now - WITHIN)

    def kill_broker(self) -> None:
        self.broker.forget(self.now)
        self.reconnect()

    def move(self) -> None:
        self.broker.move()

    def finish(self) -> None:
        """Let every fault have its effect, and read what there is."""
        for _ in range(3):
            self.pass_time()
        while any(self.broker.queues.values()):
            self.read()
        self.planned = self.inbox.end(self.counts, None)
        self.decide()
        self.acknowledge()
        assert self.broker.consumers[-1].given == []
        assert self.inbox.ledger.unacknowledged == 0

    def _begin(self) -> None:
        self.spool = Rows()
        ledger = Ledger(acknowledged_for=UNWRITTEN)
        ledger.restore(self.record, self.now)
        self.inbox = Inbox(self.spool, ledger, dict(self.counts))
        self.planned = self.counts
        self._connect()

    def _connect(self) -> None:
        self.inbox.ledger.connect("broker", WITHIN, QUEUES)


Step = Callable[[Query], None]
WORK: tuple[Step, ...] = (Query.read, Query.read, Query.epoch, Query.plan, Query.decide, Query.acknowledge, Query.look)
CUTS: tuple[Step, ...] = (Query.reconnect, Query.lose_half, Query.pass_time)
CRASHES: tuple[Step, ...] = (Query.crash, Query.lose_power, Query.read_on_a_full_disk, Query.acknowledge_unheard)
BROKERS: tuple[Step, ...] = (Query.kill_broker, Query.move)


SEEDS = st.integers(0, 1 << 32)


def query_of(seed: int, messages: Sequence[tuple[str, str]]) -> Query:
    """A query of a broker with messages, each an id and its queue; the body is its number."""
    broker = Broker(Random(seed))
    for number, (id_, queue) in enumerate(messages):
        broker.send(number, id_, queue)
    return Query(broker)


# Ids of what a lost connection had confirmed were forgotten as soon as the broker must have noticed that it is gone.
@example(
    seed=0,
    steps=[
        *[Query.read] * 9,
        *[Query.epoch, Query.reconnect],
        *[Query.read] * 9,
        *[Query.pass_time, Query.pass_time, Query.look, Query.epoch, Query.kill_broker],
    ],
    poison=None,
)
@settings(max_examples=300, deadline=None)
@given(
    seed=SEEDS,
    steps=st.lists(st.sampled_from(WORK + WORK + CUTS + CRASHES + BROKERS), min_size=25, max_size=60),
    poison=st.none() | st.integers(0, MESSAGES),
)
def test_every_message_is_decided_once_whatever_fails(seed: int, steps: list[Step], poison: int | None) -> None:
    # Two of each id, as a fanout exchange makes them.
    query = query_of(seed, [(f"m{number // 2}", QUEUES[number % 2]) for number in range(MESSAGES)])
    if poison is not None:
        query.broker.queues["a"].insert(poison, Message("poison", "a", (POISON,), redelivered=False))
    for step in steps:
        step(query)
    # Somebody takes it out, as the error says.
    query.crash()
    for _ in range(3):
        query.pass_time()
    for queue in query.broker.queues.values():
        queue[:] = [each for each in queue if each.id != "poison"]
    query.finish()
    assert sorted(query.decided, key=int) == [str(number) for number in range(MESSAGES)]


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, steps=st.lists(st.sampled_from(WORK + WORK + CUTS), min_size=25, max_size=60))
def test_of_a_producers_duplicates_each_delivery_is_a_row_of_a_run(seed: int, steps: list[Step]) -> None:
    ids = [f"m{number // 2}" for number in range(MESSAGES)]
    query = query_of(seed, [(id_, "a") for id_ in ids])
    for step in steps:
        step(query)
    query.finish()
    # Which of them is dropped nobody can tell.
    assert Counter(ids[int(body)] for body in query.decided) == Counter(ids)


def test_a_full_disk_is_named_with_the_way_out() -> None:
    rows = Rows()
    rows.is_full = True
    inbox = Inbox(rows, Ledger(), dict.fromkeys(QUEUES, 0))
    with pytest.raises(SourceError, match=r"stored on the driver's disk: .*full\. .* TMPDIR .* lower maxSpoolBytes"):
        inbox.receive([Message("m0", "a", ("0",))])
    assert inbox.position == 0


class Fault(Exception):  # noqa: N818 - what is raised may be anything
    """Raised at a line."""


@contextmanager
def fault_at(line: int, *files: str) -> Iterator[list[int]]:
    """Raise at the nth line that is run in some files; yields how many there were."""
    count = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            count[0] += 1
            if count[0] == line:
                raise Fault
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def test_a_fault_at_any_line_of_receiving_leaves_no_position_without_its_row(tmp_path: Path) -> None:
    files = [str(module.__file__) for module in (inbox_module, ledger_module, spool_module)]
    line = 0
    while True:
        line += 1
        directory = tmp_path / str(line)
        directory.mkdir()
        spool, ledger = Spool(directory, SCHEMA), Ledger()
        inbox = Inbox(spool, ledger, dict.fromkeys(QUEUES, 0))
        ledger.connect("broker", WITHIN, QUEUES)
        inbox.receive([Message(each, "a", (each,)) for each in ("m0", "m1")])
        ledger.disconnect(0)
        with fault_at(line, *files) as lines, contextlib.suppress(Fault):
            inbox.receive([Message(each, "a", (each,)) for each in ("m0", "m2", "m3")])
        rows = [row for batch in inbox.rows(0, inbox.position) for row in batch.column("body").to_pylist()]
        assert rows == ["m0", "m1", "m2", "m3"][: inbox.position]
        said = {each for expected in ledger.snapshot(inbox.position).expected for each in expected.ids["a"]}
        assert said <= set(rows)
        assert sum(inbox.end({}, None).values()) >= inbox.position
        spool.close()
        if lines[0] < line:
            assert inbox.position == 4
            break
    assert line > 40
