"""The pool of a sink's transactional ids: which ones an epoch's tasks use, and when they may be reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkjet.sinks.naming import prefix_of

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.transactions import KafkaTransactions
    from sparkjet.sinks.protocol import Handle, TransactionId


@dataclass(frozen=True)
class TaskResult:
    """The result of a task of a successful job.

    Attributes:
        name: Its transactional id, None if it had no rows.
        rows: Number of its rows.
        is_first: Whether it was the first attempt at its partition: only that one uses an id of the pool.
    """

    name: str | None
    rows: int
    is_first: bool


@dataclass(frozen=True)
class _Use:
    """The last use of the pool: new ids (a generation), in two halves that take turns.

    Attributes:
        transaction: The transaction that uses it.
        generation: Name of the generation: its first transaction, with the number of the first half.
        half: 0 or 1.
        known: Producer and epoch of each id of the generation, as of its last preparation.
        handle: The prepared handle, None until then.
        is_regular: Whether all tasks were first attempts.
        is_free: Whether the generation may be reused.
    """

    transaction: TransactionId
    generation: TransactionId
    half: int = 0
    known: Mapping[str, Sequence[int]] = field(default_factory=dict)
    handle: Handle | None = None
    is_regular: bool = False
    is_free: bool = False

    @property
    def prefix(self) -> str:
        named = replace(self.generation, attempt=self.generation.attempt + self.half)
        return prefix_of(named.query, named.sink, named)


class TransactionPool:
    """The transactional ids of one sink, on the driver; see ``docs/design/012-kafka-transactions.md``.

    An id may be reused once only the task that it is given to can call ``InitProducerId`` on it, and its previous
    transaction will not be queried again: its job was regular, it was committed, every partition has its end marker,
    and so do those of the transaction after it. Anything else, including any error, leaves the generation as it is,
    and the next transaction gets a new one.

    Args:
        transactions: Ends the transactions.
    """

    def __init__(self, transactions: KafkaTransactions) -> None:
        self._transactions = transactions
        self._use: _Use | None = None
        self._before: _Use | None = None
        self._may_have_orphans = False

    def begin(self, transaction: TransactionId) -> str:
        """The prefix of the ids of a transaction's tasks; call it once per attempt at an epoch."""
        self._before = last = self._use
        same = last is not None and _driver(last.transaction) == _driver(transaction)
        if last is not None and same and last.is_free:
            self._use = _Use(transaction, last.generation, 1 - last.half, last.known)
        else:
            again = last is not None and same and last.generation.epoch == transaction.epoch
            number = last.generation.attempt + 2 if last is not None and again else 0
            self._use = _Use(transaction, replace(transaction, attempt=number))
        return self._use.prefix

    def fix(self, results: Sequence[TaskResult], *, speculates: bool = False) -> Handle | None:
        """Fix which attempts belong to the epoch, once all tasks have succeeded; None if there were no rows.

        From then on a late attempt can neither publish nor destroy anything, as no two attempts share an id. A
        transaction that it opens after this is aborted by a later commit, or at the next start.
        """
        use = self._begun()
        prepared = [(result.name, result.rows) for result in results if result.name is not None]
        regular = all(result.is_first for result in results)
        if not regular or speculates:
            self._may_have_orphans = True
            self._transactions.abort_open(use.prefix, use.transaction.takeover, [name for name, _ in prepared])
        handle = self._transactions.fix(use.transaction, prepared)
        if handle is None:
            if regular:
                # Undone, so that the next transaction uses the same ids.
                self._use = self._before
            return None
        made: dict[str, Any] = {each["id"]: [each["producer"], each["epoch"]] for each in handle["transactions"]}
        handle["pool"] = {name: numbers for name, numbers in use.known.items() if name not in made}
        self._use = replace(use, known={**use.known, **made}, handle=handle, is_regular=regular)
        return handle

    def without_rows(self, transaction: TransactionId) -> Handle:
        """The handle of an epoch without rows; a start finds in it, as in others, which ids were used last."""
        known = (
            self._use.known if self._use is not None and _driver(self._use.transaction) == _driver(transaction) else {}
        )
        return {**self._transactions.handle_of(transaction, []), "pool": dict(known)}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Commit what this driver or an earlier one prepared."""
        if not handle["transactions"]:
            between()
            return
        seen = self._transactions.commit(handle, between)
        use = self._use
        if use is None or use.handle != handle:
            # Prepared by an earlier driver: the start will abort orphans next.
            return
        self._use = replace(use, is_free=use.is_regular and seen.all_ended)
        if self._may_have_orphans or not seen.none_open:
            prefix, kept = prefix_of(handle["query"], handle["sink"]), {each["id"] for each in handle["transactions"]}
            self._may_have_orphans = bool(self._transactions.abort_open(prefix, handle["takeover"], kept))

    def abort(self, transaction: TransactionId) -> None:
        """Abort what is open of a transaction that will not be decided."""
        use = self._use
        if use is None or use.transaction != transaction:
            return
        self._use = replace(use, is_free=False)
        # Tasks may continue, and open more.
        self._may_have_orphans = True
        self._transactions.abort_open(use.prefix, transaction.takeover)

    def _begun(self) -> _Use:
        assert self._use is not None  # noqa: S101 - begin() comes first
        return self._use


def _driver(transaction: TransactionId) -> tuple[str, str, int, str]:
    return transaction.query, transaction.sink, transaction.takeover, transaction.run
