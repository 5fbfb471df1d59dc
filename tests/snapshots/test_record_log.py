"""The record log: one slot, one decision; in a directory and in a grid."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import pytest

from sparkjet.errors import FencedError, RecoveryError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import FORMAT, Border, EpochKind, Record
from sparkjet.snapshots.record_log import LOOKS, RETAINED_SLOTS, TRIMMED, RecordLog
from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.storage.grid_location import GridLocation
from sparkjet.storage.posix_directory import PosixDirectory
from tests.grid.grids import grid_of
from tests.snapshots.records import NO_WATERMARKS

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

SLOTS = 12
"""More than a log keeps."""


@dataclass(frozen=True)
class _Log:
    place: Directory
    store: DirectoryStore
    log: RecordLog


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridLocation]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        addresses = grid.addresses
        yield GridLocation(addresses, grid.access)


@pytest.fixture(params=["directory", "grid"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> _Log:
    place: Directory = PosixDirectory(tmp_path / "snapshots")
    if request.param == "grid":
        place = GridDirectory(request.getfixturevalue("members"), f"{uuid4().hex}/snapshots")
    store = DirectoryStore(place)
    store.open("checkpointLocation")
    return _Log(place, store, RecordLog(store))


def record(epoch: int, *, takeover: int = 0) -> Record:
    return Record(
        kind=EpochKind.BATCH,
        query="q",
        takeover=takeover,
        run="r",
        epoch=epoch,
        fingerprint={"keys": {"k": "string"}},
        clock=-5,
        watermarks=NO_WATERMARKS,
        stages={},
        early_at={},
        spark=None,
        transactions=[],
    )


def test_an_empty_log_has_no_newest_record(opened: _Log) -> None:
    assert opened.log.newest() is None


def test_the_newest_record_is_read_back_as_it_was_written(opened: _Log) -> None:
    opened.log.append(0, record(0))
    opened.log.append(1, record(1))
    assert opened.log.newest() == (1, record(1))


def test_of_drivers_that_race_for_each_slot_one_decides_it_and_the_others_are_fenced(opened: _Log) -> None:
    drivers = [f"run {number}" for number in range(4)]
    together, decided = threading.Barrier(len(drivers)), dict[int, list[str]]()

    def race(run: str) -> None:
        log = RecordLog(DirectoryStore(opened.place))
        for slot in range(SLOTS):
            together.wait(60)
            with suppress(FencedError):
                log.append(slot, msgspec.structs.replace(record(slot), run=run))
                decided.setdefault(slot, []).append(run)

    with ThreadPoolExecutor(len(drivers)) as pool:
        list(pool.map(race, drivers))
    assert [len(decided[slot]) for slot in range(SLOTS)] == [1] * SLOTS
    assert opened.log.newest() == (SLOTS - 1, msgspec.structs.replace(record(SLOTS - 1), run=decided[SLOTS - 1][0]))


def test_a_taken_slot_is_not_written_again(opened: _Log) -> None:
    opened.log.append(0, record(0))
    with pytest.raises(FencedError, match="slot 0"):
        opened.log.append(0, record(7))
    assert opened.log.newest() == (0, record(0))


class _SentTwice(DirectoryStore):
    """Its first put is answered with a success that is lost on the way, and sent again."""

    def put(self, slot: int, content: bytes) -> bool:
        super().put(slot, content)
        return super().put(slot, content)


def test_a_put_that_meets_its_own_entry_has_decided(tmp_path: Path) -> None:
    store = _SentTwice(tmp_path / "snapshots")
    store.open("checkpointLocation")
    log = RecordLog(store)
    log.append(0, record(0))
    log.append(1, record(1))
    assert log.newest() == (1, record(1))
    with pytest.raises(FencedError, match="slot 1"):
        log.append(1, record(1, takeover=1))


def test_a_driver_that_slept_over_the_removal_of_its_slot_is_fenced_and_leaves_no_trace(opened: _Log) -> None:
    for slot in range(3 * RETAINED_SLOTS):
        opened.log.append(slot, record(slot, takeover=1))
    assert 2 not in opened.store.slots()
    with pytest.raises(FencedError):
        opened.log.append(2, record(99))
    newest = opened.log.newest()
    assert newest is not None
    assert newest[1].epoch == 3 * RETAINED_SLOTS - 1
    opened.log.append(3 * RETAINED_SLOTS, record(3 * RETAINED_SLOTS))
    assert opened.store.slots() == list(range(2 * RETAINED_SLOTS + 1, 3 * RETAINED_SLOTS + 1))


def test_only_the_newest_slots_are_kept(opened: _Log) -> None:
    for slot in range(50):
        opened.log.append(slot, record(slot))
    assert 48 % TRIMMED == 0
    assert opened.store.slots() == list(range(48 - RETAINED_SLOTS + 1, 50))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kind": "epoch"}', b"\xff\xfe"])
def test_a_damaged_record_is_refused_by_name(opened: _Log, content: bytes) -> None:
    opened.store.put(4, content)
    with pytest.raises(RecoveryError, match="record 4"):
        opened.log.newest()


def test_a_record_of_a_newer_format_is_refused(opened: _Log) -> None:
    newer = msgspec.structs.replace(record(0), format=FORMAT + 1)
    opened.store.put(0, newer.encode())
    with pytest.raises(RecoveryError, match="Upgrade sparkjet"):
        opened.log.newest()


def test_leftovers_of_crashed_puts_are_removed_when_the_store_is_opened(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.open("checkpointLocation")
    store.put(0, b"{}")
    for name in (".000000000001.json.4711-0a1b2c3d", ".nfs0000000000000001"):
        (tmp_path / "log" / name).touch()
    store.open("checkpointLocation")
    assert {path.name for path in (tmp_path / "log").iterdir()} == {"000000000000.json", ".nfs0000000000000001"}
    assert store.slots() == [0]


class _Trimming(DirectoryStore):
    """Its query goes on, and trims, after each of the first listings."""

    left = 2

    def slots(self) -> list[int]:
        found = super().slots()
        if self.left:
            self.left, more = self.left - 1, found[-1] + 1
            super().put(more, record(more).encode())
            super().trim(more)
        return found


class _Lost(DirectoryStore):
    """A listing has what cannot be read."""

    def read(self, slot: int) -> bytes:
        raise FileNotFoundError(slot)


def test_a_reader_that_is_slower_than_the_query_looks_again(opened: _Log) -> None:
    opened.log.append(0, record(0))
    assert RecordLog(_Trimming(opened.place)).newest() == (2, record(2))
    # Nobody has superseded what is gone here.
    with pytest.raises(FileNotFoundError):
        RecordLog(_Lost(opened.place)).newest()


class _Unread(DirectoryStore):
    """Does not expect to be read."""

    def read(self, slot: int) -> bytes:
        raise AssertionError(f"slot {slot} was read")


def test_a_driver_whose_slot_is_the_newest_is_not_fenced_and_reads_nothing(opened: _Log) -> None:
    opened.log.append(0, record(0))
    assert RecordLog(_Unread(opened.place)).fenced(0, record(0)) is None
    opened.log.append(1, msgspec.structs.replace(record(1), run="another"))
    assert isinstance(opened.log.fenced(0, record(0)), FencedError)


class _Unlisted(DirectoryStore):
    """Does not expect to be listed."""

    def slots(self) -> list[int]:
        raise AssertionError("the log was listed")


def test_a_driver_that_looks_for_a_successor_every_second_reads_a_slot_that_is_not_there(opened: _Log) -> None:
    opened.log.append(0, record(0))
    watching = RecordLog(_Unlisted(opened.place))
    for _ in range(LOOKS - 1):
        assert watching.followed(0, record(0)) is None
    with pytest.raises(AssertionError, match="listed"):
        watching.followed(0, record(0))
    opened.log.append(1, msgspec.structs.replace(record(1), run="another"))
    assert isinstance(opened.log.followed(0, record(0)), FencedError)


def test_a_switch_does_not_fence_the_driver_whose_run_it_names(opened: _Log) -> None:
    opened.log.append(0, record(0))
    switched = msgspec.structs.replace(record(0), until=Border("another", 7))
    opened.log.append(1, switched)
    assert opened.log.followed(0, record(0)) == opened.log.switched(0, record(0)) == switched
    # A query is switched once.
    assert opened.log.followed(1, switched) is opened.log.switched(0, switched) is None
    opened.log.append(2, msgspec.structs.replace(switched, run="another"))
    assert isinstance(opened.log.followed(0, record(0)), FencedError)


class _Switching(DirectoryStore):
    """A store in which somebody's switch follows every record at once."""

    def put(self, slot: int, content: bytes) -> bool:
        done = super().put(slot, content)
        switched = msgspec.structs.replace(Record.decode(content, "it"), until=Border("another", 7))
        return super().put(slot + 1, switched.encode()) and done


def test_a_record_that_was_switched_at_once_is_decided(opened: _Log) -> None:
    RecordLog(_Switching(opened.place)).append(0, record(0))
    assert opened.log.followed(0, record(0)) == msgspec.structs.replace(record(0), until=Border("another", 7))


def test_a_switch_that_comes_when_its_slot_has_been_removed_is_not_decided(opened: _Log) -> None:
    for slot in range(3 * RETAINED_SLOTS):
        opened.log.append(slot, record(slot))
    assert 2 not in opened.store.slots()
    with pytest.raises(FencedError):
        # Of the run that is still the newest.
        opened.log.append(2, msgspec.structs.replace(record(1), until=Border("another", 7)))
    opened.log.append(3 * RETAINED_SLOTS, msgspec.structs.replace(record(0), until=Border("another", 7)))


def test_a_driver_that_slept_over_the_removal_of_the_next_slot_too_finds_its_successor(opened: _Log) -> None:
    opened.log.append(0, record(0))
    for slot in range(1, 3 * RETAINED_SLOTS):
        opened.log.append(slot, msgspec.structs.replace(record(slot), run="another"))
    looks = [opened.log.followed(0, record(0)) for _ in range(LOOKS)]
    assert looks[:-1] == [None] * (LOOKS - 1)
    assert isinstance(looks[-1], FencedError)
