"""The committer: the sinks of a query, each with its name, and how an epoch passes through them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.errors import CopiedHomeError, LostTransactionError, RecoveryError, UnsettledError
from sparkjet.query_log import logger
from sparkjet.sinks.copies import run_name
from sparkjet.sinks.protocol import (
    Aborting,
    Ageing,
    Clocked,
    Comparing,
    Creating,
    Expiring,
    Gathering,
    Telling,
    TransactionId,
    Trying,
    Unknown,
)
from sparkjet.snapshots.record import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from sparkjet.sinks.protocol import Handle, Sink
    from sparkjet.snapshots.record import Record


_FINAL = LostTransactionError, CopiedHomeError
"""Errors that another attempt at a commit would not resolve."""


@dataclass(frozen=True)
class Retry:
    """How often the commit of a decided transaction is tried in a row.

    Attributes:
        attempts: Right after the decision; a commit that still fails is tried again between epochs.
        patient_attempts: Before a new transaction is opened; if all fail, the query stops, and the next start tries
        again.
        first_wait: Seconds after the first failure; doubled after each further one.
        longest_wait: The longest of these pauses, in seconds.
    """

    attempts: int = 5
    patient_attempts: int = 12
    first_wait: float = 0.2
    longest_wait: float = 5.0


@dataclass
class _Group:
    """Transactions of one sink that wait to be committed as one.

    Attributes:
        since: The clock reading at the decision of the first one.
        epochs: Number of epochs decided since then, including that one.
    """

    since: int
    epochs: int = 0


class Committer:
    """The sinks of one query and the transactions that are decided but not confirmed.

    A transaction enters ``unsettled`` with its decision and leaves it when its sink has confirmed the commit. While
    anything is unsettled, no new transaction is opened: a sink may reuse what the old one still needs, and epochs are
    settled in order. Every record names the unsettled transactions. Only those of a sink that gathers epochs may wait
    for others.

    Args:
        sinks: Sinks by name of the output.
        retry: How often a commit is tried.
        formats: The users' names for the sinks; their types if none is given.
    """

    def __init__(
        self, sinks: Mapping[str, Sink], retry: Retry | None = None, formats: Mapping[str, str] | None = None
    ) -> None:
        self.sinks = dict(sinks)
        self._formats = {name: type(sink).__name__ for name, sink in sinks.items()} | dict(formats or {})
        self.unsettled: list[PreparedTransaction] = []
        self._retry = retry if retry is not None else Retry()
        self._settled_early: list[PreparedTransaction] = []
        self._clock = 0
        self._groups: dict[str, _Group] = {}

    @property
    def overdue(self) -> list[PreparedTransaction]:
        """The decided transactions that should be committed by now."""
        return [each for each in self.unsettled if not self._waits(each.sink)]

    def create(self) -> None:
        """Create whatever is missing at the destinations of the rows."""
        for sink in self.sinks.values():
            if isinstance(sink, Creating):
                sink.create()

    def prepare(self, name: str, rows: DataFrame, transaction: TransactionId) -> list[PreparedTransaction]:
        """Prepare the rows of one sink; empty if there were none."""
        self.settle(attempts=self._retry.patient_attempts, whole=False)
        handle = self.sinks[name].prepare(rows, transaction)
        return [] if handle is None else [PreparedTransaction(name, handle, self._formats[name])]

    def prepare_tried(
        self, name: str, rows: DataFrame, transaction: TransactionId, earlier: Sequence[PreparedTransaction]
    ) -> list[PreparedTransaction]:
        """Like :meth:`prepare`, followed by a trial after the transactions that were tried before it."""
        made = self.prepare(name, rows, transaction)
        self.try_out([*earlier, *made], earlier)
        return made

    def due(self, now: int) -> set[str]:
        """The outputs for which an epoch is due by the clock, although there are no rows for them."""
        return {name for name, sink in self.sinks.items() if isinstance(sink, Clocked) and sink.is_due(now)}

    def is_to_tell(self, name: str, clock: int, watermark: int | None) -> bool:
        """Whether to tell the readers of one sink about a watermark, with or without rows."""
        sink = self.sinks[name]
        return isinstance(sink, Telling) and sink.tells(clock, watermark)

    def tell(self, name: str, transaction: TransactionId) -> list[PreparedTransaction]:
        """Like :meth:`prepare`, without rows, for a sink for which :meth:`is_to_tell` is true."""
        self.settle(attempts=self._retry.patient_attempts, whole=False)
        sink = self.sinks[name]
        assert isinstance(sink, Telling)  # noqa: S101 - as above
        return [PreparedTransaction(name, sink.tell(transaction), self._formats[name])]

    def abort(self, transactions: Sequence[TransactionId]) -> None:
        """Undo what an epoch that failed before its decision has prepared: locks and readers would wait for it.

        Best effort: the next start rolls back whatever remains.
        """
        for transaction in transactions:
            sink = self.sinks[transaction.sink]
            if isinstance(sink, Aborting):
                try:
                    sink.abort(transaction)
                except Exception as error:  # noqa: BLE001 - the epoch has failed already, of something else
                    logger.warning(
                        "sink %r could not undo transaction %s of an epoch that failed: %s. The next start will roll "
                        "it back.",
                        transaction.sink,
                        transaction,
                        error,
                    )

    def decided(self, transactions: Sequence[PreparedTransaction], clock: int = 0) -> None:
        """Take over the transactions of one epoch, whose record has been written."""
        self._clock = clock
        self.unsettled += [each for each in transactions if each not in self._settled_early]
        for name in {each.sink for each in self.unsettled}:
            self._groups.setdefault(name, _Group(clock)).epochs += 1

    def age(self, query: str) -> None:
        """Remove rows that are too old at the destinations; call it when an epoch has ended."""
        for name, sink in self.sinks.items():
            if isinstance(sink, Ageing):
                sink.age(query, name)

    def attempt(
        self, between: Callable[[], None] = lambda: None, *, clock: int | None = None, whole: bool = False
    ) -> None:
        """Like :meth:`settle`, but a commit that keeps failing is left for later: it is decided, and stays so."""
        self._clock = self._clock if clock is None else clock
        try:
            self.settle(between, whole=whole)
        except UnsettledError as error:
            logger.warning("%s It is tried again between epochs.", error)

    def settle(
        self, between: Callable[[], None] = lambda: None, attempts: int | None = None, *, whole: bool = True
    ) -> None:
        """Commit everything that is decided, each sink's oldest first, with retries.

        A sink that fails does not make the others wait, and transactions that expire come first.
        """
        failed: dict[str, LostTransactionError | CopiedHomeError | UnsettledError] = {}
        for group in self._in_order():
            name = group[0].sink
            if name in failed or (self._waits(name) and not whole):
                continue
            try:
                self._commit(group, between, attempts or self._retry.attempts)
            except (*_FINAL, UnsettledError) as error:
                failed[name] = error
            else:
                done = set(map(id, group))
                self.unsettled = [each for each in self.unsettled if id(each) not in done]
                self._groups.pop(name, None)
        if failed:
            _raise_all(list(failed.values()))

    def settle_what_expires(self, record: Record) -> None:
        """Commit the decided transactions that a destination will drop, before anything may refuse the start.

        This needs no takeover: a decided transaction may be committed by any driver, any number of times. A failure is
        tried again, and reported, when everything is settled.
        """
        for prepared in record.transactions:
            if self._expires(prepared):
                try:
                    self._commit([prepared], lambda: None, self._retry.attempts)
                except (*_FINAL, UnsettledError) as error:
                    logger.warning("%s", error)
                else:
                    self._settled_early.append(prepared)

    def try_out(self, transactions: Sequence[PreparedTransaction], tried: Sequence[PreparedTransaction] = ()) -> None:
        """Refuse to decide on rows that a destination would refuse."""
        earlier: list[tuple[Sink, Handle]] = []
        for prepared in transactions:
            sink = self.sinks[prepared.sink]
            if isinstance(sink, Trying) and prepared not in tried:
                sink.try_out(prepared.handle, earlier)
            earlier.append((sink, prepared.handle))

    def check_alive(self, transactions: Sequence[PreparedTransaction]) -> None:
        """Refuse to decide on a transaction that might be gone before it is committed."""
        for prepared in transactions:
            sink = self.sinks[prepared.sink]
            if isinstance(sink, Expiring):
                sink.check_alive(prepared.handle)

    def check_history(self, record: Record, *, is_first: bool = False) -> None:
        """Refuse to continue from a record that the sinks cannot commit, or that is older than what they hold."""
        for prepared in record.transactions:
            self._check_known(prepared)
        last = {
            each.sink: each.handle for each in [*record.published, *record.transactions] if self._obstacle(each) is None
        }
        for name, sink in self.sinks.items():
            newest = TransactionId(record.query, name, record.takeover, record.epoch, 0, run_name(record.run))
            later = sink.published_after(newest, last.get(name))
            if later not in {None, Unknown.UNKNOWN}:
                found = f"The newest record is of epoch {record.epoch} (takeover {record.takeover})"
                if is_first:
                    found = "The home of this query has no record"
                raise RecoveryError(f"{found}, but sink {name!r} was written by a later one: {later}")

    def published(self, before: Record, decided: Sequence[PreparedTransaction]) -> list[PreparedTransaction]:
        """The last transaction of each sink that compares it with its destination at a start, for the record."""
        last = {each.sink: each for each in [*before.published, *decided] if self._compares(each)}
        return list(last.values())

    def abort_orphans(self, record: Record) -> None:
        """Remove what earlier drivers prepared and did not decide; call it after :meth:`settle`."""
        for name, sink in self.sinks.items():
            keep = [prepared.handle for prepared in self.unsettled if prepared.sink == name]
            sink.abort_orphans(record.query, record.takeover, keep)

    def _in_order(self) -> list[list[PreparedTransaction]]:
        """The decided transactions, grouped by what is committed as one."""
        groups: dict[object, list[PreparedTransaction]] = {}
        for number, prepared in enumerate(sorted(self.unsettled, key=lambda each: not self._expires(each))):
            is_gathered = isinstance(self.sinks.get(prepared.sink), Gathering) and self._obstacle(prepared) is None
            groups.setdefault(prepared.sink if is_gathered else number, []).append(prepared)
        return list(groups.values())

    def _waits(self, name: str) -> bool:
        """Whether decided transactions of a sink wait for more epochs."""
        group = self._groups.get(name)
        if group is None or name not in self.sinks:
            return False
        sink = self.sinks[name]
        return isinstance(sink, Gathering) and not sink.commit_every.is_due(group.epochs, self._clock - group.since)

    def _expires(self, prepared: PreparedTransaction) -> bool:
        return isinstance(self.sinks.get(prepared.sink), Expiring) and self._obstacle(prepared) is None

    def _compares(self, prepared: PreparedTransaction) -> bool:
        return isinstance(self.sinks.get(prepared.sink), (Comparing, Expiring)) and self._obstacle(prepared) is None

    def _obstacle(self, prepared: PreparedTransaction) -> str | None:
        """The reason why none of the sinks can commit a transaction, None if one can."""
        here = self._formats.get(prepared.sink)
        if here is None:
            return f"this query has no output {prepared.sink!r}"
        if prepared.format in {"", here}:
            return None
        return f"the format of output {prepared.sink!r} was {prepared.format!r} and is {here!r} now"

    def _check_known(self, prepared: PreparedTransaction) -> None:
        obstacle = self._obstacle(prepared)
        if obstacle is not None:
            message = (
                f"The snapshot holds a decided transaction that no output can commit: {obstacle}. Start the query once "
                "more as it was and stop it with query.stop(), so that these rows are published; then change it."
            )
            raise RecoveryError(message)

    def _commit(self, group: Sequence[PreparedTransaction], between: Callable[[], None], attempts: int) -> None:
        for prepared in group:
            self._check_known(prepared)
        name, handles = group[0].sink, [each.handle for each in group]
        sink = self.sinks[name]
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential(self._retry.first_wait, self._retry.longest_wait),
            retry=tenacity.retry_if_exception(lambda e: not isinstance(e, _FINAL)),
            before_sleep=tenacity.before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        try:
            if isinstance(sink, Gathering):
                retrying(sink.commit_all, handles, between)
            else:
                retrying(sink.commit, handles[0], between)
        except _FINAL:
            raise
        except Exception as error:
            reason = str(error).rstrip(".")
            message = (
                f"Sink {name!r} could not publish a decided transaction: {reason}. Nothing is lost: remove "
                "the cause and start the query again; it publishes these rows first."
            )
            raise UnsettledError(message) from error


def _raise_all(errors: Sequence[LostTransactionError | CopiedHomeError | UnsettledError]) -> None:
    """Raise one error for several: an error that no other attempt will resolve takes precedence."""
    gravest = next((error for error in errors if isinstance(error, _FINAL)), errors[0])
    others = [str(error) for error in errors if error is not gravest]
    if not others:
        raise gravest
    raise type(gravest)(" ".join([str(gravest), *others])) from gravest
