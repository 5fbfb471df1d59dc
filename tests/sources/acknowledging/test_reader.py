"""The stream reader, called as Spark's planner calls it, with an engine on the other end of its line."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging import reader as module
from sparkjet.sources.acknowledging.contract import Message
from sparkjet.sources.acknowledging.control import Acknowledge, ControlClient, Held, Start, Stop
from sparkjet.sources.acknowledging.ledger import LedgerState
from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader, ReaderSettings
from sparkjet.sources.acknowledging.receiver import Limits
from sparkjet.sources.alignment import Aligner, file_of, place, write
from tests.faults.waiting import until
from tests.sources.acknowledging.queues import SCHEMA, Broker, BrokerSource

ALL = ReadAllAvailable()
LONG = 60.0
"""Seconds that a test waits at most."""
Offset = dict[str, Any]


@pytest.fixture
def broker() -> Broker:
    return Broker("orders", "returns")


@pytest.fixture
def reader(broker: Broker) -> Iterator[Callable[[], AcknowledgingStreamReader]]:
    made: list[AcknowledgingStreamReader] = []

    def make() -> AcknowledgingStreamReader:
        made.append(AcknowledgingStreamReader(partial(BrokerSource, broker), SCHEMA, ReaderSettings(most=2)))
        made[-1].prepareForTriggerAvailableNow()
        return made[-1]

    yield make
    for each in made:
        each.stop()


def started(reader: AcknowledgingStreamReader, at: Offset, state: LedgerState | None = None) -> Offset:
    """The offset of the first batch, which the engine answers."""
    first = reader.latestOffset(at, ALL)
    assert first["queues"] == at["queues"]
    assert reader.partitions(at, first) == []
    tell(first, Start(identified=True, state=state))
    return first


def tell(offset: Offset, request: Any) -> LedgerState | None:
    with closing(ControlClient(offset["receiver"])) as engine:
        return engine.ask(request)


def rows(reader: AcknowledgingStreamReader, start: Offset, end: Offset) -> list[str]:
    """The rows that the tasks of a batch read, in whichever process they run."""
    return [
        body
        for partition in reader.partitions(start, end)
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))  # noqa: S301 - as Spark does
        for body in batch.column("body").to_pylist()
    ]


def test_a_run_reads_what_there_is_in_batches_of_the_limit(
    broker: Broker, reader: Callable[[], AcknowledgingStreamReader]
) -> None:
    broker.send("orders", "m1", "m2", "m3")
    first = reader()
    at = started(first, first.initialOffset())
    limit = first.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    found: list[str] = []
    while (end := first.latestOffset(at, limit)) != at:
        assert rows(first, at, end) == rows(first, at, end)
        found += rows(first, at, end)
        tell(end, Acknowledge(sum(end["queues"].values())))
        at = end
    assert found == ["body of m1", "body of m2", "body of m3"]
    assert at["queues"] == first.reportLatestOffset()["queues"] == {"orders": 3, "returns": 0}  # type: ignore[index]
    first.stop()
    first.stop()
    assert broker.unacknowledged == []
    assert not Path(at["receiver"]).parent.exists()


class OneByOne(BrokerSource):
    """Gets a message at a time."""

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """See :meth:`AcknowledgingSource.receive`."""
        return super().receive(min(most, 1), seconds)


@pytest.mark.parametrize(("limit", "wanted"), [(ALL, 9), (ReadMaxRows(4), 4)])
def test_a_run_that_ends_by_itself_reads_much_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, limit: Any, wanted: int
) -> None:
    monkeypatch.setattr(module, "_GATHERING", LONG)
    broker.send("orders", *(f"m{number}" for number in range(9)))
    reader = AcknowledgingStreamReader(partial(OneByOne, broker), SCHEMA, ReaderSettings())
    try:
        reader.prepareForTriggerAvailableNow()
        at = started(reader, reader.initialOffset())
        assert reader.latestOffset(at, limit)["queues"] == {"orders": wanted, "returns": 0}
    finally:
        reader.stop()


class Prefetching(OneByOne):
    """Gets no more than three messages before they are acknowledged."""

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """See :meth:`AcknowledgingSource.receive`."""
        return super().receive(min(most, 3 - len(self._broker.unacknowledged)), seconds)


def test_a_run_that_ends_by_itself_does_not_wait_for_more_than_queues_deliver(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GATHERING", 2 * LONG)
    broker.send("orders", *(f"m{number}" for number in range(9)))
    reader = AcknowledgingStreamReader(partial(Prefetching, broker), SCHEMA, ReaderSettings())
    try:
        reader.prepareForTriggerAvailableNow()
        at = started(reader, reader.initialOffset())
        with ThreadPoolExecutor() as asking:
            at = asking.submit(reader.latestOffset, at, ALL).result(LONG)
            assert at["queues"] == {"orders": 3, "returns": 0}
            # What is not acknowledged yet makes no batch small.
            later = asking.submit(reader.latestOffset, at, ALL)
            tell(at, Acknowledge(3))
            assert later.result(LONG)["queues"] == {"orders": 6, "returns": 0}
    finally:
        reader.stop()


def test_a_run_does_not_end_before_its_last_epoch_is_acknowledged(
    broker: Broker, reader: Callable[[], AcknowledgingStreamReader]
) -> None:
    broker.send("orders", "m1")
    first = reader()
    end = first.latestOffset(started(first, first.initialOffset()), ALL)
    with ThreadPoolExecutor() as beside:
        asked = beside.submit(first.latestOffset, end, ALL)
        done, _ = wait([asked], 0.3)
        assert not done
        tell(end, Acknowledge(1))
        assert asked.result(LONG) == end
    assert broker.unacknowledged == []


def test_the_next_run_drops_what_the_record_says(
    broker: Broker, reader: Callable[[], AcknowledgingStreamReader]
) -> None:
    broker.send("orders", "m1", "m2")
    first = reader()
    begin = started(first, first.initialOffset())
    decided = first.latestOffset(begin, ReadMaxRows(1))
    state = tell(decided, Held(1))
    assert state is not None
    assert (state.position, [each.ids for each in state.expected]) == (1, [{"orders": ["m1"]}])
    # It ends before anything is acknowledged.
    first.stop()

    second = reader()
    # Spark plans the last batch once more.
    assert second.partitions(begin, decided) == []
    at = started(second, decided, state)
    # The first one comes again, and has no position: its row has one.
    end = second.latestOffset(at, ALL)
    while end["queues"]["orders"] < 2:
        end = second.latestOffset(at, ALL)
    assert rows(second, at, end) == ["body of m2"]


def test_the_offset_names_partitions_that_are_held_back_and_drops_them_with_the_option(broker: Broker) -> None:
    def make(drift: int | None) -> AcknowledgingStreamReader:
        limits = Limits(messages=2)
        aligner = None if drift is None else Aligner(drift, place(), "sparkjet-rabbitmq")
        return AcknowledgingStreamReader(
            partial(BrokerSource, broker), SCHEMA, ReaderSettings(None, limits, drift), aligner
        )

    broker.send("orders", "m1", "m2", "m3")
    broker.send("returns", "m4")
    first = make(300)
    at = started(first, first.initialOffset())
    write(file_of(at), {})
    end = first.latestOffset(at, ALL)
    while end["queues"]["orders"] < 2:
        write(file_of(end), {})
        end = first.latestOffset(end, ALL)
    # As the engine says it after the batch: who is ahead waits for the one that the broker has not delivered yet.
    write(file_of(end), {"orders": 400, "returns": 0})
    with ThreadPoolExecutor() as beside:
        # It is full, and waits, as with overlapEpochs: the epoch before is decided later.
        asked = beside.submit(first.latestOffset, end, ALL)
        until(lambda: broker.held == {"orders"}, "the queue to be held back")
        tell(end, Acknowledge(2))
        last = asked.result(LONG)
    assert last["queues"] == {"orders": 2, "returns": 1}
    assert last["alignment"] == {**end["alignment"], "held": {"orders": 400}, "slowest": "returns"}
    state = tell(last, Held(3))
    first.stop()
    second = make(None)
    at = started(second, last, state)
    assert at.keys() == {"queues", "receiver"}
    second.stop()


def test_the_engine_may_begin_twice_and_ends_it(
    broker: Broker, reader: Callable[[], AcknowledgingStreamReader]
) -> None:
    broker.send("orders", "m1")
    first = reader()
    begin = started(first, first.initialOffset())
    tell(begin, Start(identified=True, state=None))
    end = first.latestOffset(begin, ALL)
    tell(end, Acknowledge(1))
    tell(end, Stop())
    assert broker.unacknowledged == []
    assert broker.ready() == {"orders": 0, "returns": 0}
    assert not Path(end["receiver"]).parent.exists()
    # Spark may stop it as well.
    first.stop()


def test_a_query_that_is_not_sparkjets_is_told_so(
    reader: Callable[[], AcknowledgingStreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STARTS_WITHIN", 0.01)
    first = reader()
    at = first.latestOffset(first.initialOffset(), ALL)
    assert first.reportLatestOffset() is None
    with pytest.raises(SourceError, match=r"read it with sj\.stream\(df\)"):
        first.latestOffset(at, ALL)


def test_a_record_of_another_position_is_refused(reader: Callable[[], AcknowledgingStreamReader]) -> None:
    first = reader()
    with pytest.raises(SourceError, match="the ids are of position 5"):
        started(first, first.initialOffset(), LedgerState(5, []))
