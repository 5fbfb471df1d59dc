"""A decided transaction whose commit fails: it stays decided, and nothing is opened before it is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparkjet.engine.committer import Committer, Retry
from sparkjet.errors import LostTransactionError, RecoveryError, UnsettledError
from sparkjet.sinks.commit_every import CommitEvery
from sparkjet.sinks.protocol import TransactionId
from sparkjet.snapshots.record import EpochKind, PreparedTransaction, Record
from sparkjet.testing import CollectingSink
from tests.snapshots.records import NO_WATERMARKS

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle

ONCE = Retry(attempts=2, patient_attempts=4, first_wait=0.001, longest_wait=0.001)


@dataclass
class Refusing(CollectingSink):
    """Refuses a number of commits."""

    refusals: int = 0
    asked: list[str] = field(default_factory=list)
    error: Callable[[str], Exception] = ConnectionError

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Refuse or show the rows."""
        self.asked.append(handle["transaction"])
        if len(self.asked) <= self.refusals:
            raise self.error("away")
        super().commit(handle, between)


@dataclass
class Rows:
    """As much of a DataFrame as the sink reads."""

    values: list[tuple[int]]

    def collect(self) -> list[tuple[int]]:
        return self.values


def prepare(outputs: Committer, epoch: int) -> None:
    transaction = TransactionId("q", "results", 0, epoch, 0)
    outputs.decided(outputs.prepare("results", Rows([(epoch,)]), transaction))  # type: ignore[arg-type]


def test_what_fails_stays_decided_and_is_committed_before_a_new_transaction_is_opened() -> None:
    sink = Refusing(refusals=3)
    outputs = Committer({"results": sink}, ONCE)
    prepare(outputs, 1)
    outputs.attempt()
    assert (len(sink.asked), sink.committed) == (2, {})
    assert [each.handle["transaction"] for each in outputs.unsettled] == ["000000-000000001-0"]
    prepare(outputs, 2)
    assert sink.committed == {1: [(1,)]}
    outputs.attempt()
    assert sink.committed == {1: [(1,)], 2: [(2,)]}
    assert outputs.unsettled == []


def test_what_goes_on_failing_lets_no_transaction_be_opened() -> None:
    sink = Refusing(refusals=100)
    outputs = Committer({"results": sink}, ONCE)
    prepare(outputs, 1)
    outputs.attempt()
    with pytest.raises(UnsettledError, match="Nothing is lost"):
        prepare(outputs, 2)
    assert list(sink.prepared) == ["000000-000000001-0"]
    assert len(outputs.unsettled) == 1


def test_what_is_lost_is_not_tried_again() -> None:
    sink = Refusing(refusals=100, error=LostTransactionError)
    outputs = Committer({"results": sink}, ONCE)
    prepare(outputs, 1)
    with pytest.raises(LostTransactionError):
        outputs.attempt()
    assert len(sink.asked) == 1


def test_what_one_sink_has_lost_holds_back_no_other() -> None:
    losing, other = Refusing(refusals=100, error=LostTransactionError), Refusing()
    outputs = Committer({"losing": losing, "other": other}, ONCE)
    for epoch in (1, 2):
        for name in outputs.sinks:
            transaction = TransactionId("q", name, 0, epoch, 0)
            handle = outputs.sinks[name].prepare(Rows([(epoch,)]), transaction)  # type: ignore[arg-type]
            assert handle is not None
            outputs.decided([PreparedTransaction(name, handle)])
    with pytest.raises(LostTransactionError):
        outputs.attempt()
    assert other.committed == {1: [(1,)], 2: [(2,)]}
    assert [each.sink for each in outputs.unsettled] == ["losing", "losing"]
    assert len(losing.asked) == 1


@dataclass
class Fleeting(Refusing):
    """Its destination drops what waits for long."""

    def check_alive(self, handle: Handle) -> None:
        """Nothing is that old here."""


def decide(outputs: Committer, name: str, epoch: int) -> PreparedTransaction:
    """A transaction that is decided and not committed."""
    handle = outputs.sinks[name].prepare(Rows([(epoch,)]), TransactionId("q", name, 0, epoch, 0))  # type: ignore[arg-type]
    assert handle is not None
    return PreparedTransaction(name, handle, type(outputs.sinks[name]).__name__)


def test_a_sink_that_is_away_keeps_no_other_sink_waiting() -> None:
    away, other = Refusing(refusals=100), Refusing()
    outputs = Committer({"away": away, "other": other}, ONCE)
    for epoch in (1, 2):
        outputs.decided([decide(outputs, name, epoch) for name in outputs.sinks])
    outputs.attempt()
    assert other.committed == {1: [(1,)], 2: [(2,)]}
    with pytest.raises(UnsettledError, match="'away'"):
        outputs.settle()
    assert [each.sink for each in outputs.unsettled] == ["away", "away"]
    # Its epochs stay in their order: the second is not tried before the first.
    assert set(away.asked) == {"000000-000000001-0"}


def test_several_sinks_that_fail_are_all_named_and_lost_rows_are_the_graver_news() -> None:
    sinks = {"away": Refusing(refusals=100), "losing": Refusing(refusals=100, error=LostTransactionError)}
    outputs = Committer(sinks, ONCE)
    outputs.decided([decide(outputs, name, 1) for name in sinks])
    with pytest.raises(LostTransactionError, match="'away'"):
        outputs.attempt()


def test_what_expires_is_committed_first() -> None:
    order: list[str] = []

    @dataclass
    class Noted(Refusing):
        def commit(self, handle: Handle, between: Callable[[], None]) -> None:
            order.append("lasting")
            super().commit(handle, between)

    @dataclass
    class NotedFleeting(Fleeting):
        def commit(self, handle: Handle, between: Callable[[], None]) -> None:
            order.append("fleeting")
            super().commit(handle, between)

    outputs = Committer({"lasting": Noted(refusals=1), "fleeting": NotedFleeting()}, ONCE)
    outputs.decided([decide(outputs, name, 1) for name in outputs.sinks])
    outputs.settle()
    assert order == ["fleeting", "lasting", "lasting"]


@dataclass
class Gathered(Refusing):
    """Commits several epochs at once."""

    commit_every: CommitEvery = field(default_factory=lambda: CommitEvery(3))
    groups: list[list[int]] = field(default_factory=list)

    def commit_all(self, handles: Sequence[Handle], between: Callable[[], None]) -> None:
        """See :meth:`Gathering.commit_all`."""
        for handle in handles:
            self.commit(handle, between)
        self.groups.append([handle["epoch"] for handle in handles])


def test_epochs_wait_for_others_and_are_committed_as_one() -> None:
    gathered, other = Gathered(), Refusing()
    outputs = Committer({"gathered": gathered, "other": other}, ONCE)
    for epoch in range(1, 6):
        # The last one has no rows for it, and counts.
        outputs.decided([decide(outputs, name, epoch) for name in outputs.sinks if (name, epoch) != ("gathered", 5)])
        outputs.attempt()
        assert max(other.committed) == epoch
        waiting = {1: 1, 2: 2, 3: 0, 4: 1, 5: 1}
        assert ([each.sink for each in outputs.unsettled], outputs.overdue) == (["gathered"] * waiting[epoch], [])
    outputs.decided([])
    outputs.attempt()
    assert gathered.groups == [[1, 2, 3], [4]]


def test_what_waits_is_committed_in_time_at_the_end_and_before_a_start_decides_anything() -> None:
    for how in ("in time", "at the end", "by a successor"):
        sink = Gathered(commit_every=CommitEvery(100, duration=10))
        outputs = Committer({"results": sink}, ONCE)
        record = record_of(*(decide(outputs, "results", epoch) for epoch in (1, 2)))
        for clock, prepared in enumerate(record.transactions, 100):
            outputs.decided([prepared], clock)
        outputs.attempt(clock=109)
        assert sink.groups == []
        if how == "in time":
            outputs.attempt(clock=110)
        else:
            if how == "by a successor":
                outputs = Committer({"results": sink}, ONCE)
                outputs.decided(record.transactions)
            outputs.settle()
        assert (sink.groups, outputs.unsettled) == ([[1, 2]], [])


def test_a_group_that_cannot_be_committed_takes_no_other_epoch() -> None:
    sink = Gathered(refusals=100, commit_every=CommitEvery(2))
    outputs = Committer({"results": sink}, ONCE)
    for epoch in (1, 2):
        prepare(outputs, epoch)
        outputs.attempt()
    assert len(outputs.overdue) == 2
    with pytest.raises(UnsettledError, match="'results'"):
        prepare(outputs, 3)
    sink.refusals = 0
    prepare(outputs, 3)
    assert sink.groups == [[1, 2]]


def record_of(*transactions: PreparedTransaction, published: Sequence[PreparedTransaction] = ()) -> Record:
    record = Record(EpochKind.BATCH, "q", 3, "r", 7, {}, 0, NO_WATERMARKS, {}, {}, None, list(transactions))
    return msgspec.structs.replace(record, published=list(published))


def test_a_start_commits_what_expires_before_anything_else_and_only_once() -> None:
    lasting, fleeting = Refusing(), Fleeting()
    outputs = Committer({"lasting": lasting, "fleeting": fleeting}, ONCE)
    record = record_of(*(decide(outputs, name, 7) for name in outputs.sinks))
    outputs.settle_what_expires(record)
    assert (lasting.committed, fleeting.committed) == ({}, {7: [(7,)]})
    outputs.decided(record.transactions)
    outputs.settle()
    assert (len(lasting.asked), len(fleeting.asked)) == (1, 1)


def test_what_expires_and_cannot_be_committed_at_once_is_tried_again_and_reported_then() -> None:
    fleeting = Fleeting(refusals=4)
    outputs = Committer({"fleeting": fleeting}, ONCE)
    record = record_of(decide(outputs, "fleeting", 7))
    outputs.settle_what_expires(record)
    outputs.decided(record.transactions)
    with pytest.raises(UnsettledError):
        outputs.settle()
    outputs.settle()
    assert fleeting.committed == {7: [(7,)]}


@pytest.mark.parametrize(
    ("sink", "format_", "match"),
    [
        ("other", "Refusing", "this query has no output 'other'"),
        ("results", "files", "the format of output 'results' was 'files' and is 'Refusing' now"),
    ],
)
def test_a_decided_transaction_that_no_sink_can_commit_is_refused_by_name(sink: str, format_: str, match: str) -> None:
    results = Refusing()
    outputs = Committer({"results": results}, ONCE)
    with pytest.raises(RecoveryError, match=match):
        outputs.check_history(record_of(PreparedTransaction(sink, {"transaction": "x"}, format_)))
    assert results.asked == []


@dataclass
class Remembered(Fleeting):
    """Its destination says what was published after a record."""

    later: str | None = None
    asked_about: list[tuple[TransactionId, Handle | None]] = field(default_factory=list)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`."""
        self.asked_about.append((newest, handle))
        return self.later


def test_a_record_that_is_older_than_what_a_sink_has_is_refused_and_both_are_named() -> None:
    sink = Remembered()
    outputs = Committer({"results": sink}, ONCE)
    earlier = PreparedTransaction("results", {"transaction": "earlier"}, "Remembered")
    outputs.check_history(record_of(published=[earlier]))
    assert sink.asked_about == [(TransactionId("q", "results", 3, 7, 0, "r"), earlier.handle)]
    sink.later = "the table has epoch 9. Bring the newest snapshots back."
    with pytest.raises(RecoveryError, match=r"newest record is of epoch 7.* 'results' .*the table has epoch 9"):
        outputs.check_history(record_of())


def test_a_home_that_has_no_record_although_a_sink_knows_the_query_is_refused() -> None:
    sink = Remembered(later="the table has epoch 9. Bring a copy of the home back.")
    with pytest.raises(RecoveryError, match=r"The home of this query has no record, but sink 'results' .* epoch 9"):
        Committer({"results": sink}, ONCE).check_history(record_of(), is_first=True)


def test_a_record_keeps_the_last_transactions_of_sinks_that_forget() -> None:
    outputs = Committer({"lasting": Refusing(), "fleeting": Fleeting()}, ONCE)
    first = [decide(outputs, name, 1) for name in outputs.sinks]
    published = outputs.published(record_of(), first)
    assert [each.sink for each in published] == ["fleeting"]
    assert outputs.published(record_of(published=published), []) == published


@dataclass
class Undoing(CollectingSink):
    """Undoes what an attempt has prepared."""

    broken: bool = False
    aborted: list[TransactionId] = field(default_factory=list)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self.aborted.append(transaction)
        if self.broken:
            raise ConnectionError("away")


def test_an_attempt_that_cannot_be_undone_keeps_no_other_sink_from_it() -> None:
    first, second = Undoing(broken=True), Undoing()
    transactions = [TransactionId("q", name, 0, 1, 0) for name in ("first", "plain", "second")]
    Committer({"first": first, "plain": CollectingSink(), "second": second}).abort(transactions)
    assert (first.aborted, second.aborted) == ([transactions[0]], [transactions[2]])
