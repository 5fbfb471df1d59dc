"""The contract of sinks as a suite that every sink passes, including yours.

Inherit :class:`SinkContract` in a pytest test class and give it a fixture ``target``; the session comes from a fixture
``spark``::

    class TestMySink(SinkContract):
        @pytest.fixture
        def target(self, spark, tmp_path):
            sink = MySink(...)
            sink.attach(tmp_path / "outbox", spark)  # an OutboxSink
            sink.check(spark.createDataFrame([], SCHEMA).schema)
            sink.create()  # if it has that
            return SinkUnderTest(sink, read=lambda: sink.rows(), dangling=lambda: sink.prepared())
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from sparkjet.errors import CopiedHomeError, RefusedRowsError
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.protocol import Aborting, Gathering, Handle, Sink, TransactionId, Trying, Unknown
from sparkjet.snapshots.copying import copy_newest
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.stream_driver import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, n long"
QUERY = "11111111-2222-3333-4444-555555555555"
RUN, OTHER_RUN, NEXT_RUN = "aaaaaaaa", "bbbbbbbb", "cccccccc"


class _CrashError(Exception):
    """Stands for the death of the driver between two visible changes."""


def transaction(epoch: int, *, takeover: int = 0, attempt: int = 0, run: str = "", since: int = 0) -> TransactionId:
    """Identity of a transaction of the sink under test."""
    return TransactionId(QUERY, "results", takeover, epoch, attempt, run, since)


def crash_at(change: int) -> Callable[[], None]:
    """A ``between`` that dies after the given visible change, counted from 1."""
    seen = [0]

    def between() -> None:
        seen[0] += 1
        if seen[0] == change:
            raise _CrashError

    return between


@dataclass
class SinkUnderTest:
    """A sink, and a way to read what others see of it."""

    sink: Sink
    read: Callable[[], Sequence[tuple[str, int]]]
    """Returns the rows that a plain reader sees, in any order; for an at-least-once sink, each row once."""
    dangling: Callable[[], int]
    """Returns the number of transactions that are neither committed nor rolled back."""
    refused: Callable[[DataFrame], DataFrame] | None = None
    """Turns good rows into ones that the destination refuses; None if any refusal ends the query."""


class SinkContract:
    """Tests that each sink's test class inherits; it provides the fixture ``target``."""

    def rows(self, spark: SparkSession, *numbers: int) -> DataFrame:
        """Rows to write, over two partitions."""
        return spark.createDataFrame([(f"k{n}", n) for n in numbers], SCHEMA).repartition(2)

    def prepare(self, target: SinkUnderTest, rows: DataFrame, of: TransactionId) -> Handle:
        """Prepare rows that are not empty."""
        handle = target.sink.prepare(rows, of)
        assert handle is not None
        return handle

    def test_nothing_is_seen_before_the_commit_and_everything_after(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        handle = self.prepare(target, self.rows(spark, 1, 2, 3), transaction(1))
        assert target.read() == []
        target.sink.commit(handle, lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k3", 3)]
        assert target.dangling() == 0

    def test_an_epoch_without_rows_prepares_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        assert target.sink.prepare(self.rows(spark, 1).where("n > 5"), transaction(1)) is None
        assert target.dangling() == 0

    def test_a_repeated_commit_changes_nothing(self, spark: SparkSession, target: SinkUnderTest) -> None:
        handle = self.prepare(target, self.rows(spark, 1, 2), transaction(1))
        for _ in range(3):
            target.sink.commit(handle, lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2)]

    @pytest.mark.parametrize("change", [1, 2])
    def test_a_commit_cut_short_is_finished_by_the_next(
        self, spark: SparkSession, target: SinkUnderTest, change: int
    ) -> None:
        handle = self.prepare(target, self.rows(spark, *range(8)), transaction(1))
        with contextlib.suppress(_CrashError):
            target.sink.commit(handle, crash_at(change))
        target.sink.abort_orphans(QUERY, 1, [handle])
        target.sink.commit(handle, lambda: None)
        assert sorted(target.read()) == [(f"k{n}", n) for n in range(8)]
        assert target.dangling() == 0

    def test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        decided = self.prepare(target, self.rows(spark, 1), transaction(1))
        self.prepare(target, self.rows(spark, 2), transaction(2))
        self.prepare(target, self.rows(spark, 3), transaction(2, attempt=1))
        target.sink.abort_orphans(QUERY, 1, [decided])
        assert target.dangling() == 1
        target.sink.commit(decided, lambda: None)
        assert target.read() == [("k1", 1)]
        assert target.dangling() == 0

    def test_a_driver_that_was_itself_taken_over_rolls_back_nothing_of_its_successor(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        of_successor = self.prepare(target, self.rows(spark, 5), transaction(2, takeover=7))
        target.sink.abort_orphans(QUERY, 6, [])
        target.sink.commit(of_successor, lambda: None)
        assert target.read() == [("k5", 5)]

    def test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        if target.refused is None:
            pytest.skip("what the destination refuses ends the query")
        good = self.rows(spark, 1, 2, 3)
        both = good.unionByName(target.refused(self.rows(spark, 4)))
        with pytest.raises(RefusedRowsError):
            self._tried_out(target, both, transaction(1))
        if isinstance(target.sink, Aborting):
            target.sink.abort(transaction(1))
        # Another attempt, as a name is never used for other rows.
        handle = self._tried_out(target, good, transaction(1, attempt=1000))
        target.sink.commit(handle, lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k3", 3)]

    def _tried_out(self, target: SinkUnderTest, rows: DataFrame, of: TransactionId) -> Handle:
        handle = self.prepare(target, rows, of)
        if isinstance(target.sink, Trying):
            target.sink.try_out(handle, [])
        return handle

    def test_epochs_add_up(self, spark: SparkSession, target: SinkUnderTest) -> None:
        for epoch in (1, 2, 4):
            target.sink.commit(self.prepare(target, self.rows(spark, epoch), transaction(epoch)), lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k4", 4)]

    def test_a_driver_that_slept_for_epochs_and_commits_again_changes_nothing(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        handles = [self.prepare(target, self.rows(spark, 1, 2), transaction(1))]
        target.sink.commit(handles[0], lambda: None)
        for epoch in (2, 3):
            handles.append(self.prepare(target, self.rows(spark, 10 * epoch), transaction(epoch, takeover=1)))
            target.sink.commit(handles[-1], lambda: None)
        for handle in handles:
            target.sink.commit(handle, lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k20", 20), ("k30", 30)]

    def test_epochs_that_are_committed_at_once_are_seen_once_whoever_commits_which(
        self, spark: SparkSession, target: SinkUnderTest
    ) -> None:
        if not isinstance(target.sink, Gathering):
            pytest.skip("it commits each epoch by itself")
        handles = [self.prepare(target, self.rows(spark, epoch), transaction(epoch, run=RUN)) for epoch in (1, 2, 3, 5)]
        target.sink.commit_all(handles[:2], lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2)]
        # A driver that knows more of them, and some that slept.
        for known in (handles, handles[:1], handles[1:3], handles):
            target.sink.commit_all(known, lambda: None)
        target.sink.commit(handles[2], lambda: None)
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k3", 3), ("k5", 5)]
        assert target.dangling() == 0

    def test_it_knows_later_epochs_or_says_that_it_cannot(self, spark: SparkSession, target: SinkUnderTest) -> None:
        _, of = self._new_query()
        before = target.sink.published_after(of(0), None)
        assert before in {None, Unknown.UNKNOWN}
        handles = []
        for epoch in (1, 3):
            handles.append(self.prepare(target, self.rows(spark, epoch), of(epoch, run=RUN)))
            target.sink.commit(handles[-1], lambda: None)
        assert target.sink.published_after(of(3, run=RUN), handles[-1]) == before
        for newest, handle in ((of(1, run=RUN), handles[0]), (of(0), None)):
            later = target.sink.published_after(newest, handle)
            assert later is before is Unknown.UNKNOWN or re.search(r"\bepoch [123]\b", str(later))

    def test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own(
        self, spark: SparkSession, target: SinkUnderTest, tmp_path: Path
    ) -> None:
        def at(home: str) -> None:
            if isinstance(target.sink, Outbox):
                target.sink.attach(tmp_path / home, spark)

        query, of = self._new_query()
        if target.sink.published_after(of(0), None) is Unknown.UNKNOWN:
            pytest.skip("the destination keeps no epochs")
        at("home")
        target.sink.commit(self.prepare(target, self.rows(spark, 1), of(1, run=RUN)), lambda: None)
        mine = self.prepare(target, self.rows(spark, 2), of(2, takeover=1, run=RUN, since=1))
        at("copy")
        others = self.prepare(target, self.rows(spark, 20, 21), of(2, takeover=1, run=OTHER_RUN, since=1))
        at("home")
        target.sink.commit(mine, lambda: None)
        at("copy")
        with pytest.raises(CopiedHomeError, match="another copy"):
            target.sink.commit(others, lambda: None)
        at("home")
        # A successor repeats what its predecessor has decided, and continues.
        target.sink.commit(mine, lambda: None)
        following = of(3, takeover=2, run=NEXT_RUN, since=2)
        target.sink.commit(self.prepare(target, self.rows(spark, 3), following), lambda: None)
        # Now the copy is behind; the next start rolls back what it cannot publish.
        at("copy")
        with pytest.raises(CopiedHomeError, match="another copy"):
            target.sink.commit(others, lambda: None)
        target.sink.abort_orphans(query, 3, [])
        assert sorted(target.read()) == [("k1", 1), ("k2", 2), ("k3", 3)]

    def test_a_query_goes_on_from_a_copy_of_its_home(
        self, spark: SparkSession, target: SinkUnderTest, tmp_path: Path
    ) -> None:
        home, copy = tmp_path / "home", tmp_path / "copy"
        driver = self._driver(spark, target, home)
        driver.process(self.rows(spark, 1).collect())
        # While the record names what it has decided, although the sink may have discarded it.
        copy_newest(PosixDirectory(home), PosixDirectory(copy))
        driver.stop()
        again = self._driver(spark, target, copy)
        again.process(self.rows(spark, 2).collect())
        again.stop()
        assert sorted(target.read()) == [("k1", 1), ("k2", 2)]

    def _driver(self, spark: SparkSession, target: SinkUnderTest, home: Path) -> StreamDriver:
        schema = self.rows(spark, 1).schema
        return StreamDriver(spark, lambda rows: rows, schema, sinks=[target.sink], directory=home)

    def _new_query(self) -> tuple[str, Callable[..., TransactionId]]:
        """The id of a new query, and its transactions: destinations remember those of other tests."""
        query = str(uuid4())

        def of(epoch: int, **given: Any) -> TransactionId:
            return replace(transaction(epoch, **given), query=query)

        return query, of
