"""The contract of snapshot stores as a suite that every store passes, including yours.

Inherit :class:`StoreContract` in a pytest test class and give it a fixture ``target``; the session comes from a fixture
``spark``::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def target(self):
            place = new_empty_place()
            return StoreUnderTest(MyStore(place), again=lambda: MyStore(place), foreign=place.put)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import RecoveryError
from sparkjet.snapshots import Delta, SnapshotStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVERS = 4
"""Number of drivers that want the same slot."""
SLOTS = 25
"""Number of slots that they want."""
SIZE = 100_000
"""Bytes that each of them writes: enough for a reader to find half of them."""
DELTA, BLOB = "000000-000000001-0-aggregation0", "000000-000000001-source0"


Content = tuple[int, frozenset[int]]


def outline(content: bytes) -> Content:
    """The length and the byte values of a content: pytest would take minutes to explain how two long ones differ."""
    return len(content), frozenset(content)


def _nothing(name: str) -> None:
    """Do nothing: nothing else can be in the place of the store."""


@dataclass
class StoreUnderTest:
    """An empty store, and what happens to it from outside."""

    store: SnapshotStore
    again: Callable[[], SnapshotStore]
    """Creates another object for the same place, like another driver."""
    foreign: Callable[[str], None] = _nothing
    """Puts something of that name next to the slots, the deltas and the blobs, as file systems and users do."""


class StoreContract:
    """Tests that each store's test class inherits; it provides the fixture ``target``."""

    def write(self, spark: SparkSession, store: SnapshotStore, name: str, rows: int = 6) -> Delta:
        """Write a delta that contains a null, a fraction and bytes."""
        files = store.write_delta(name, self.partials(spark, rows))
        return Delta(name, list(files), rows, 0, rows, size=sum(files.values()))

    def partials(self, spark: SparkSession, rows: int) -> DataFrame:
        """Rows over two partitions."""
        values = "IF(id = 0, null, CAST(id AS string)) AS key", "CAST(id / 3 AS decimal(20, 10)) AS total"
        table = spark.range(rows).selectExpr("id AS frame", *values, "named_struct('x', encode('é', 'UTF-8')) AS acc")
        return table.repartition(2, "frame")

    def test_a_slot_is_written_once(self, target: StoreUnderTest) -> None:
        assert target.store.put(3, b"first")
        assert not target.store.put(3, b"second")
        assert not target.again().put(3, b"third")
        assert target.store.read(3) == target.again().read(3) == b"first"

    def test_of_several_drivers_one_writes_a_slot_and_all_of_it(self, target: StoreUnderTest) -> None:
        stores = [target.again() for _ in range(DRIVERS)]
        together = threading.Barrier(DRIVERS)
        contents = [bytes([driver]) * SIZE for driver in range(DRIVERS)]
        wins: dict[int, list[int]] = {slot: [] for slot in range(SLOTS)}
        read: dict[int, set[Content]] = {slot: set() for slot in range(SLOTS)}
        failures: list[Exception] = []

        def write(driver: int) -> None:
            try:
                for slot in range(SLOTS):
                    together.wait(60)
                    if stores[driver].put(slot, contents[driver]):
                        wins[slot].append(driver)
                    # The losers immediately read what has won.
                    read[slot].add(outline(stores[driver].read(slot)))
            except threading.BrokenBarrierError:
                return
            except Exception as failure:  # noqa: BLE001 - the test fails of it below
                failures.append(failure)
                together.abort()

        with ThreadPoolExecutor(DRIVERS) as beside:
            list(beside.map(write, range(DRIVERS)))
        assert failures == []
        for slot in range(SLOTS):
            assert len(wins[slot]) == 1
            assert read[slot] == {outline(target.store.read(slot))} == {outline(contents[wins[slot][0]])}

    def test_slots_are_listed_in_the_order_of_their_numbers(self, target: StoreUnderTest) -> None:
        assert target.store.slots() == []
        for slot in (10, 2, 1, 999_999_999_999, 9):
            target.store.put(slot, b"")
        assert target.store.slots() == target.again().slots() == [1, 2, 9, 10, 999_999_999_999]
        assert target.store.read(9) == b""

    def test_pins_are_listed_with_their_slots_until_they_are_removed(self, target: StoreUnderTest) -> None:
        assert target.store.pins() == []
        assert target.store.put_pin(12, "before-v2.1", b"first")
        assert target.store.put_pin(3, "12", b"second")
        assert not target.again().put_pin(3, "12", b"third")
        assert target.store.pins() == target.again().pins() == [(3, "12"), (12, "before-v2.1")]
        assert target.again().read_pin(12, "before-v2.1") == b"first"
        target.again().remove_pin(12, "before-v2.1")
        target.store.remove_pin(12, "before-v2.1")
        assert target.store.pins() == [(3, "12")]
        with pytest.raises(FileNotFoundError):
            target.store.read_pin(12, "before-v2.1")
        assert target.store.slots() == []

    def test_a_pinned_slot_stands_for_its_last_revision_until_it_is_not_pinned(self, target: StoreUnderTest) -> None:
        target.store.put(3, b"put")
        for name in ("one", "two"):
            target.store.put_pin(3, name, b"")
        assert target.store.revised() == {}
        for number, content in enumerate((b"first", b"second")):
            assert target.again().revise(3, content, number)
            # A put that was sent twice.
            assert target.again().revise(3, content, number)
            assert target.store.revised() == {3: (number + 1, content)}
        for number in (0, 1):
            assert not target.again().revise(3, b"of what is no longer there", number)
        assert (target.store.read(3), target.store.slots()) == (b"put", [3])
        assert target.store.pins() == [(3, "one"), (3, "two")]
        target.store.remove_pin(3, "one")
        assert target.again().revised() == {3: (2, b"second")}
        target.store.remove_pin(3, "two")
        assert target.again().revised() == {}

    def test_a_slot_that_does_not_exist_is_not_found(self, target: StoreUnderTest) -> None:
        target.store.put(1, b"one")
        with pytest.raises(FileNotFoundError):
            target.store.read(2)

    def test_trimming_removes_the_slots_below(self, target: StoreUnderTest) -> None:
        for slot in range(5):
            target.store.put(slot, b"%d" % slot)
        for _ in range(2):
            target.store.trim(3)
            assert target.store.slots() == [3, 4]
        assert target.store.read(3) == b"3"
        with pytest.raises(FileNotFoundError):
            target.again().read(2)

    def test_a_delta_comes_back_as_it_was_written(self, spark: SparkSession, target: StoreUnderTest) -> None:
        delta = self.write(spark, target.store, DELTA)
        expected = self.partials(spark, 6)
        found = target.again().read_delta(spark, delta)
        assert found.schema.simpleString() == expected.schema.simpleString()
        assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))

    def test_a_delta_that_is_gone_is_an_error_that_names_it(self, spark: SparkSession, target: StoreUnderTest) -> None:
        delta = self.write(spark, target.store, DELTA)
        target.store.remove(DELTA)
        with pytest.raises(RecoveryError, match=DELTA):
            target.again().read_delta(spark, delta)

    def test_a_blob_comes_back_as_it_was_written(self, target: StoreUnderTest) -> None:
        for number, content in enumerate((b"", b"\x00\xff\n", b"x" * 100_000)):
            target.store.put_blob(f"{BLOB}{number}", content)
            assert target.again().read_blob(f"{BLOB}{number}") == content
        with pytest.raises(RecoveryError, match="000000-000000002-source0"):
            target.store.read_blob("000000-000000002-source0")

    def test_deltas_and_blobs_have_names_and_can_be_removed(self, spark: SparkSession, target: StoreUnderTest) -> None:
        assert target.store.names() == []
        self.write(spark, target.store, DELTA)
        target.store.put_blob(BLOB, b"x")
        target.store.put(1, b"one")
        assert sorted(target.again().names()) == [DELTA, BLOB]
        target.store.remove(DELTA)
        assert target.store.names() == [BLOB]
        target.store.remove(BLOB)
        # Another driver may have been faster.
        target.store.remove(BLOB)
        assert target.again().names() == []
        assert target.store.slots() == [1]

    def test_what_is_not_its_own_is_not_a_slot_and_stays(self, spark: SparkSession, target: StoreUnderTest) -> None:
        target.store.put(7, b"seven")
        self.write(spark, target.store, DELTA)
        for name in (".nfs0001", "lost+found", "7.json.backup"):
            target.foreign(name)
        before = target.store.names()
        assert DELTA in before
        assert target.store.slots() == [7]
        target.store.trim(8)
        assert target.store.slots() == []
        target.store.remove(DELTA)
        assert sorted(target.again().names()) == sorted(name for name in before if name != DELTA)
