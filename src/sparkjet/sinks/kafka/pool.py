"""The pool of a sink's transactional ids: which ones an epoch's tasks use, and when they may be used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkjet.sinks.naming import prefix_of

if TYPE_CHECKING:
    from sparkjet.sinks.kafka.transactions import KafkaTransactions
    from sparkjet.sinks.protocol import Handle, TransactionId


@dataclass(frozen=True)
class Answer:
    """What a task of a job that has succeeded says.

    Attributes:
        name: Its transactional id, None if it had no rows.
        rows: Their number.
        is_first: Whether it was the first attempt at its partition: only that uses an id without a number of its own.
    """

    name: str | None
    rows: int
    is_first: bool


@dataclass(frozen=True)
class _Use:
    """The last use of the pool: ids that nobody had before (a generation), in two halves that take turns.

    Attributes:
        transaction: Whose it is.
        generation: Names the generation: the first transaction that had it, with the number of the first half.
        half: 0 or 1.
        known: Producer and epoch of each id of the generation, as they were when it was last prepared.
        handle: What was prepared, None until then.
        is_regular: Whether all tasks were first attempts.
        is_free: Whether the generation may be used once more.
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
    """The ids of one sink on the driver, and what is done with them; see ``docs/design/012-kafka-transactions.md``.

    An id may be used again when nobody can call ``InitProducerId`` on it but the task it is given to, and nobody will
    ask about the transaction that it held before: its job was regular, it was committed, every partition knows its
    end, and so do those of the transaction after it. Anything else, an error of any kind included, leaves the
    generation as it is, and the next transaction has a new one.

    Args:
        transactions: How they are ended.
    """

    def __init__(self, transactions: KafkaTransactions) -> None:
        self._transactions = transactions
        self._use: _Use | None = None
        self._before: _Use | None = None
        self._may_have_strays = False

    def begin(self, transaction: TransactionId) -> str:
        """What the ids of a transaction's tasks begin with; call it once for each attempt at an epoch."""
        self._before = last = self._use
        same = last is not None and _driver(last.transaction) == _driver(transaction)
        if last is not None and same and last.is_free:
            self._use = _Use(transaction, last.generation, 1 - last.half, last.known)
        else:
            again = last is not None and same and last.generation.epoch == transaction.epoch
            number = last.generation.attempt + 2 if last is not None and again else 0
            self._use = _Use(transaction, replace(transaction, attempt=number))
        return self._use.prefix

    def fix(self, answers: Sequence[Answer], *, speculates: bool = False) -> Handle | None:
        """Fix which tasks count, when all have succeeded; None if there were no rows.

        From then on a late attempt can neither publish nor destroy anything, as no two have one id. What it opens
        after this is rolled back by a later commit, or at the next start.

        Args:
            answers: One of each task.
            speculates: Whether Spark may have run tasks twice at once.

        Raises:
            SinkError: Brokers cannot be reached, or have given one of the transactions up.
        """
        use = self._begun()
        slots = [(answer.name, answer.rows) for answer in answers if answer.name is not None]
        regular = all(answer.is_first for answer in answers)
        if not regular or speculates:
            self._may_have_strays = True
            self._transactions.roll_back_open(use.prefix, use.transaction.takeover, [name for name, _ in slots])
        handle = self._transactions.fix(use.transaction, slots)
        if handle is None:
            if regular:
                # As if it had not been: its ids are those of the next transaction.
                self._use = self._before
            return None
        made: dict[str, Any] = {slot["id"]: [slot["producer"], slot["epoch"]] for slot in handle["transactions"]}
        handle["pool"] = {name: numbers for name, numbers in use.known.items() if name not in made}
        self._use = replace(use, known={**use.known, **made}, handle=handle, is_regular=regular)
        return handle

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Commit what was prepared, by this driver or another one.

        Raises:
            LostTransactionError: The brokers gave some of it up; the rest is committed.
            SinkError: Brokers cannot be reached, or are others than those that have the rows; try again.
        """
        seen = self._transactions.commit(handle, between)
        use = self._use
        if use is None or use.handle != handle:
            # An earlier driver's: at the start strays are rolled back next.
            return
        self._use = replace(use, is_free=use.is_regular and seen.is_told)
        if self._may_have_strays or not seen.is_clear:
            prefix, kept = prefix_of(handle["query"], handle["sink"]), {slot["id"] for slot in handle["transactions"]}
            self._may_have_strays = bool(self._transactions.roll_back_open(prefix, handle["takeover"], kept))

    def abort(self, transaction: TransactionId) -> None:
        """Roll back what is open of a transaction that will not be decided.

        Raises:
            SinkError: Brokers cannot be reached; the next start rolls it back.
        """
        use = self._use
        if use is None or use.transaction != transaction:
            return
        self._use = replace(use, is_free=False)
        # Tasks may go on, and open more.
        self._may_have_strays = True
        self._transactions.roll_back_open(use.prefix, transaction.takeover)

    def _begun(self) -> _Use:
        assert self._use is not None  # noqa: S101 - begin() comes first
        return self._use


def _driver(transaction: TransactionId) -> tuple[str, str, int]:
    return transaction.query, transaction.sink, transaction.takeover
