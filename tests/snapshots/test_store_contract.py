"""The directory store keeps the contract of stores, and the suite finds what breaks it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.snapshots import Delta, DirectoryStore
from sparkjet.testing.store_contract import StoreContract, StoreUnderTest
from tests.contracts import broken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def under_test(kind: type[DirectoryStore], place: Path) -> StoreUnderTest:
    store = kind(place)
    store.open("checkpointLocation")

    def foreign(name: str) -> None:
        for directory in ("log", "state", "blobs"):
            (place / directory / name).write_bytes(b"not ours")

    return StoreUnderTest(store, lambda: kind(place), foreign)


class TestContract(StoreContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> StoreUnderTest:
        return under_test(DirectoryStore, tmp_path)


class CheckingFirst(DirectoryStore):
    """Looks whether a slot is free, and then writes it."""

    def put(self, slot: int, content: bytes) -> bool:
        if slot in self.slots():
            return False
        self._log.write(f"{slot:012d}.json", content)
        return True


class Overwriting(DirectoryStore):
    def put(self, slot: int, content: bytes) -> bool:
        is_free = slot not in self.slots()
        self._log.write(f"{slot:012d}.json", content)
        return is_free


class Alphabetical(DirectoryStore):
    def slots(self) -> list[int]:
        return sorted(super().slots(), key=str)


class Lenient(DirectoryStore):
    """Finds nothing where it should find an error."""

    def read(self, slot: int) -> bytes:
        return super().read(slot) if slot in self.slots() else b""

    def read_blob(self, name: str) -> bytes:
        return super().read_blob(name) if name in self.names() else b""

    def read_delta(self, session: SparkSession, delta: Delta) -> Any:
        return (
            super().read_delta(session, delta) if delta.name in self.names() else session.createDataFrame([], "x int")
        )


class TrimmingTooMuch(DirectoryStore):
    def trim(self, below: int) -> None:
        super().trim(below + 1)


class Hasty(DirectoryStore):
    """Expects everything in its directory to be its own, and to be there."""

    def slots(self) -> list[int]:
        return sorted(int(name.partition(".")[0] or -1) for name in self._log.names())

    def remove(self, name: str) -> None:
        assert name in self.names()
        super().remove(name)


class Forgetting(DirectoryStore):
    """Keeps its blobs in memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.kept: dict[str, bytes] = {}

    def put_blob(self, name: str, content: bytes) -> None:
        super().put_blob(name, b"")
        self.kept[name] = content

    def read_blob(self, name: str) -> bytes:
        return self.kept.get(name) or super().read_blob(name)


@pytest.fixture
def found(spark: SparkSession, tmp_path: Path) -> Callable[[type[DirectoryStore]], set[str]]:
    numbers = itertools.count()

    def found(kind: type[DirectoryStore]) -> set[str]:
        return broken(
            StoreContract, lambda: {"spark": spark, "target": under_test(kind, tmp_path / str(next(numbers)))}
        )

    return found


RACE = "test_of_several_drivers_one_writes_a_slot_and_all_of_it"


@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        (Overwriting, {"test_a_slot_is_written_once", RACE}),
        (Alphabetical, {"test_slots_are_listed_in_the_order_of_their_numbers"}),
        (
            Lenient,
            {
                "test_a_slot_that_does_not_exist_is_not_found",
                "test_trimming_removes_the_slots_below",
                "test_a_delta_that_is_gone_is_an_error_that_names_it",
                "test_a_blob_comes_back_as_it_was_written",
            },
        ),
        (TrimmingTooMuch, {"test_trimming_removes_the_slots_below"}),
        (Forgetting, {"test_a_blob_comes_back_as_it_was_written"}),
    ],
)
def test_violations_are_found(
    found: Callable[[type[DirectoryStore]], set[str]], kind: type[DirectoryStore], tests: set[str]
) -> None:
    assert found(kind) == tests


def test_a_slot_that_is_looked_at_before_it_is_written_loses_the_race(tmp_path: Path) -> None:
    # Not for one try only: threads may well come one after the other.
    for attempt in range(20):
        target = under_test(CheckingFirst, tmp_path / str(attempt))
        try:
            StoreContract().test_of_several_drivers_one_writes_a_slot_and_all_of_it(target)
        except AssertionError:
            return
    pytest.fail("no race was lost")


def test_what_is_not_its_own_confuses_a_store_that_expects_only_its_own(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ValueError)):
        StoreContract().test_what_is_not_its_own_is_not_a_slot_and_stays(spark, under_test(Hasty, tmp_path / "a"))
    with pytest.raises(AssertionError):
        StoreContract().test_deltas_and_blobs_have_names_and_can_be_removed(spark, under_test(Hasty, tmp_path / "b"))
