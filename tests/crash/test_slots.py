"""Slots: two drivers on one record log, one of which may have been paused for a long time; without Spark."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparkjet import FencedError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import EpochKind, Record
from sparkjet.snapshots.record_log import RETAINED_SLOTS, RecordLog
from tests.snapshots.records import NO_WATERMARKS


def record(epoch: int, takeover: int) -> Record:
    """A record that only says who decided what."""
    return Record(EpochKind.BATCH, "query", takeover, f"run {takeover}", epoch, {}, 0, NO_WATERMARKS, {}, {}, None, [])


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore(tmp_path)
    made.open("checkpointLocation")
    return made


def succeed(store: DirectoryStore, first: int, count: int) -> RecordLog:
    """A successor fills slots."""
    log = RecordLog(store)
    for slot in range(first, first + count):
        log.append(slot, record(slot, takeover=1))
    return log


@pytest.mark.parametrize("count", [1, 2, RETAINED_SLOTS - 1, RETAINED_SLOTS, RETAINED_SLOTS + 1, 5 * RETAINED_SLOTS])
def test_a_driver_that_slept_is_fenced_however_long_it_slept(store: DirectoryStore, count: int) -> None:
    old = RecordLog(store)
    old.append(0, record(0, takeover=0))
    log = succeed(store, 1, count)
    with pytest.raises(FencedError, match=r"slot 1 is not ours"):
        old.append(1, record(1, takeover=0))
    newest = log.newest()
    assert newest is not None
    assert newest == (count, record(count, takeover=1))
    assert store.read(1) == record(1, takeover=1).encode() or count > RETAINED_SLOTS


def test_a_trimmed_slot_is_not_a_decision_and_is_trimmed_again(store: DirectoryStore) -> None:
    old = RecordLog(store)
    old.append(0, record(0, takeover=0))
    log = succeed(store, 1, 2 * RETAINED_SLOTS)
    assert 1 not in store.slots()
    with pytest.raises(FencedError):
        old.append(1, record(1, takeover=0))
    assert store.slots()[0] == 1
    for slot in range(2 * RETAINED_SLOTS + 1, 3 * RETAINED_SLOTS + 1):
        log.append(slot, record(slot, takeover=1))
    assert store.slots() == list(range(2 * RETAINED_SLOTS + 1, 3 * RETAINED_SLOTS + 1))


def test_a_fenced_driver_trims_nothing(store: DirectoryStore) -> None:
    old = RecordLog(store)
    old.append(0, record(0, takeover=0))
    succeed(store, 1, 3)
    before = store.slots()
    with pytest.raises(FencedError):
        old.append(1, record(1, takeover=0))
    assert store.slots() == before


@pytest.mark.parametrize("round_", range(20))
def test_of_two_that_append_at_once_exactly_one_wins(store: DirectoryStore, round_: int) -> None:
    start = threading.Barrier(4)
    won: list[int] = []
    fenced: list[int] = []

    def append(takeover: int) -> None:
        log = RecordLog(store)
        start.wait()
        try:
            log.append(0, record(0, takeover))
            won.append(takeover)
        except FencedError:
            fenced.append(takeover)

    threads = [threading.Thread(target=append, args=(takeover,)) for takeover in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(fenced) == 3
    newest = RecordLog(store).newest()
    assert newest is not None
    assert newest[1].takeover == won[0]


def test_drivers_that_race_for_many_slots_never_decide_one_twice(store: DirectoryStore) -> None:
    """Each continues from the newest record, as a start does."""
    decided: list[tuple[int, int]] = []
    last = 50

    def race(takeover: int) -> None:
        log = RecordLog(store)
        while (slot := _next(log)) <= last:
            try:
                log.append(slot, record(slot, takeover))
            except FencedError:
                # Also raised for a driver whose record is valid, if its successor's followed immediately.
                continue
            decided.append((slot, takeover))

    threads = [threading.Thread(target=race, args=(takeover,)) for takeover in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({slot for slot, _ in decided}) == len(decided)
    # Who has decided a slot and finds the next one taken does not trim.
    slots = store.slots()
    assert slots == list(range(slots[0], last + 1))
    assert len(slots) >= RETAINED_SLOTS
    for slot in slots:
        found = Record.decode(store.read(slot), "record")
        assert found.epoch == slot
        assert all(found.takeover == takeover for winner, takeover in decided if winner == slot)


def _next(log: RecordLog) -> int:
    while True:
        try:
            newest = log.newest()
        except FileNotFoundError:
            # Trimmed between the listing and the read.
            continue
        return 0 if newest is None else newest[0] + 1
