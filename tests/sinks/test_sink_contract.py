"""The contract of sinks finds the sinks that break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from sparkjet.sinks.commit_every import EACH_EPOCH
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.testing import CollectingSink
from sparkjet.testing.sink_contract import SinkContract, SinkUnderTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def under_test(sink: CollectingSink) -> SinkUnderTest:
    return SinkUnderTest(sink, lambda: [(row.k, row.n) for row in sink.rows()], lambda: len(sink.prepared))


class TestCollectingSink(SinkContract):
    @pytest.fixture
    def target(self) -> SinkUnderTest:
        return under_test(CollectingSink())


class Hasty(CollectingSink):
    """Shows rows before they are decided."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        self.committed[transaction.epoch] = rows.collect()
        return super().prepare(rows, transaction)


class Empty(CollectingSink):
    """Opens transactions without rows."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        handle = super().prepare(rows, transaction)
        self.prepared.setdefault(str(transaction), [])
        return handle if handle is not None else {"transaction": str(transaction)}


class Appending(CollectingSink):
    """Adds the rows once more when a commit is repeated."""

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        before = dict(self.prepared)
        super().commit(handle, between)
        epoch = int(handle["transaction"].split("-")[1])
        if handle["transaction"] not in before:
            self.committed[epoch] = self.committed[epoch] * 2


class Careless(CollectingSink):
    """Rolls back what was decided, and what its successor has prepared."""

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        self.prepared.clear()


class Leaving(CollectingSink):
    """Rolls nothing back."""

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Nothing."""


class OnlyTheLast(CollectingSink):
    """Replaces what it has shown before."""

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        super().commit(handle, between)
        newest = max(self.committed)
        self.committed = {newest: self.committed[newest]}


class Gathered(CollectingSink):
    """Takes epochs that it is given together for committed if the first of them is."""

    commit_every = EACH_EPOCH

    def commit_all(self, handles: Sequence[Handle], between: Callable[[], None]) -> None:
        for handle in handles if handles[0]["epoch"] not in self.committed else ():
            self.commit(handle, between)


@pytest.mark.parametrize(
    ("sink", "test"),
    [
        (Hasty, "test_nothing_is_seen_before_the_commit_and_everything_after"),
        (Empty, "test_an_epoch_without_rows_prepares_nothing"),
        (Appending, "test_a_repeated_commit_changes_nothing"),
        (OnlyTheLast, "test_epochs_add_up"),
        (Gathered, "test_epochs_that_are_committed_at_once_are_seen_once_whoever_commits_which"),
        (Leaving, "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided"),
    ],
)
def test_violations_are_found(spark: SparkSession, sink: type[CollectingSink], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(SinkContract(), test)(spark, under_test(sink()))


def test_a_sink_that_rolls_back_too_much_is_found(spark: SparkSession) -> None:
    # Its next commit finds nothing, which is an error.
    with pytest.raises(Exception, match="nothing is prepared"):
        SinkContract().test_a_commit_cut_short_is_finished_by_the_next(spark, under_test(Careless()), 1)
