"""Outputs: the sinks of a query, each with its name, and how an epoch goes through them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.engine.record import Prepared
from sparkjet.errors import LostTransactionError, RecoveryError, UnsettledError
from sparkjet.sinks.protocol import Creating, Expiring, TransactionId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from sparkjet.engine.record import Record
    from sparkjet.sinks.protocol import Sink

logger = logging.getLogger("sparkjet")


@dataclass(frozen=True)
class Retry:
    """How often a decided transaction is tried in one go.

    Attributes:
        attempts: Right after the decision; what fails then is tried again between epochs.
        patient_attempts: Before a new transaction is opened; then the query stops, and the next start tries again.
        first_wait: Seconds after the first failure; twice as long after each other.
        longest_wait: The longest of these pauses.
    """

    attempts: int = 5
    patient_attempts: int = 12
    first_wait: float = 0.2
    longest_wait: float = 5.0


class Outputs:
    """The sinks of one query and the transactions that are decided but not confirmed.

    A transaction enters ``unsettled`` with its decision and leaves it when its sink has confirmed the commit; while
    anything is unsettled no new transaction is opened, because a sink may reuse what the old one still needs, and
    because epochs are settled in their order. Every record names what is unsettled.
    """

    def __init__(self, sinks: Mapping[str, Sink], retry: Retry | None = None) -> None:
        self.sinks = dict(sinks)
        self.unsettled: list[Prepared] = []
        self._retry = retry if retry is not None else Retry()

    def create(self) -> None:
        """Make what is missing where the rows go."""
        for sink in self.sinks.values():
            if isinstance(sink, Creating):
                sink.create()

    def prepare(self, name: str, rows: DataFrame, transaction: TransactionId) -> list[Prepared]:
        """Prepare the rows of one sink; empty if there were none.

        Raises:
            UnsettledError: If an earlier transaction could not be committed first.
        """
        self.settle(attempts=self._retry.patient_attempts)
        handle = self.sinks[name].prepare(rows, transaction)
        return [] if handle is None else [Prepared(name, handle)]

    def decided(self, transactions: list[Prepared]) -> None:
        """Take over transactions whose record has been written."""
        self.unsettled += transactions

    def attempt(self, between: Callable[[], None] = lambda: None) -> None:
        """As :meth:`settle`, but what goes on failing is left for later: it is decided, and stays so.

        Raises:
            LostTransactionError: If a prepared transaction is gone.
        """
        try:
            self.settle(between)
        except UnsettledError as error:
            logger.warning("%s It is tried again between epochs.", error)

    def settle(self, between: Callable[[], None] = lambda: None, attempts: int | None = None) -> None:
        """Commit everything that is decided, each sink's oldest first, trying again for a while.

        Raises:
            UnsettledError: If a commit went on failing; the transaction stays decided.
            LostTransactionError: If a prepared transaction is gone; it stays decided, as do later ones of its sink.
        """
        lost: dict[str, LostTransactionError] = {}
        for prepared in list(self.unsettled):
            sink = self.sinks.get(prepared.sink)
            if sink is None:
                message = (
                    f"The snapshot holds a decided transaction of sink {prepared.sink!r}, which this query does not "
                    "have. Start it once more with that sink, so that the rows are published."
                )
                raise RecoveryError(message)
            if prepared.sink in lost:
                continue
            try:
                self._commit(sink, prepared, between, attempts or self._retry.attempts)
            except LostTransactionError as error:
                # What other sinks hold might be lost too, while somebody reads the message.
                lost[prepared.sink] = error
            else:
                self.unsettled.remove(prepared)
        for first in lost.values():
            raise first

    def check_alive(self, transactions: Sequence[Prepared]) -> None:
        """Refuse to decide what might be gone before it is committed.

        Raises:
            SinkError: One of them may not live that long.
        """
        for prepared in transactions:
            sink = self.sinks[prepared.sink]
            if isinstance(sink, Expiring):
                sink.check_alive(prepared.handle)

    def forgets(self, record: Record) -> bool:
        """Whether a destination will one day not know any more what the record has it asked about."""
        return any(isinstance(self.sinks.get(prepared.sink), Expiring) for prepared in record.transactions)

    def roll_back_strays(self, record: Record) -> None:
        """Remove what earlier drivers prepared and nobody decided; call it after :meth:`settle`."""
        for name, sink in self.sinks.items():
            keep = [prepared.handle for prepared in self.unsettled if prepared.sink == name]
            sink.roll_back_strays(record.query, record.takeover, keep)

    def _commit(self, sink: Sink, prepared: Prepared, between: Callable[[], None], attempts: int) -> None:
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential(self._retry.first_wait, self._retry.longest_wait),
            retry=tenacity.retry_if_exception(lambda e: not isinstance(e, LostTransactionError)),
            before_sleep=tenacity.before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        try:
            retrying(sink.commit, prepared.handle, between)
        except LostTransactionError:
            raise
        except Exception as error:
            said = str(error).rstrip(".")
            message = (
                f"Sink {prepared.sink!r} could not publish a decided transaction: {said}. Nothing is lost: mend the "
                "cause and start the query again, it publishes these rows first."
            )
            raise UnsettledError(message) from error
