"""Refused rows: rows of an epoch that a sink refuses, found before the decision by trying parts of the epoch's rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, FAILURE, KEPT, ORIGINAL
from sparkjet.catalyst.tries import LONGEST
from sparkjet.errors import RefusedRowsError
from sparkjet.plan.diverting import OUTPUTS, carried, failure
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from sparkjet.engine.committer import Committer
    from sparkjet.sinks.protocol import TransactionId
    from sparkjet.snapshots.record import PreparedTransaction

MOST = 50
"""Number of rows to look for; each takes about two trials for each time that the epoch's rows can be halved."""
ATTEMPTS = 1000
"""Distance of trials' attempt numbers from those of epochs, as a name is never reused for other rows."""
REFUSED = -1
"""Replaces a link's number in ``FAILURE``."""
_NUMBER = "_sparkjet_number"


class RefusedRows:
    """The rows of an output that its sink refuses, and the others.

    Args:
        tried: The rows, as returned by :meth:`Transformations.tried`.
        committer: The sinks.
        transaction: The refused transaction.
        earlier: The transactions that the epoch has prepared before it.
        error: The sink's error.
    """

    def __init__(
        self,
        tried: DataFrame,
        committer: Committer,
        transaction: TransactionId,
        earlier: Sequence[PreparedTransaction],
        error: RefusedRowsError,
    ) -> None:
        hidden = [name for name in CARRIED if name in tried.columns]
        # Checkpointed: rows that are computed again may come in a different order, and would get different numbers.
        kept = tried.where(KEPT).drop(KEPT, FAILURE).withColumn(_NUMBER, F.monotonically_increasing_id())
        self._rows, self._hidden = kept.localCheckpoint(), hidden
        self._committer, self._transaction, self._earlier = committer, transaction, earlier
        self._trials = 0
        self._errors = self._found(error)
        logger.warning(
            "%s: the sink refuses %d rows of epoch %d, which are dead letters",
            transaction.sink,
            len(self._errors),
            transaction.epoch,
        )

    def next_transaction(self) -> TransactionId:
        """A transaction for which nothing has been written."""
        self._trials += 1
        return replace(self._transaction, attempt=self._transaction.attempt + ATTEMPTS * self._trials)

    def accepted(self) -> DataFrame:
        """The other rows, in the form for the sink."""
        return self._others(None)

    def letters(self) -> DataFrame:
        """The refused rows as they were at ``divert``, with ``FAILURE`` and the error of each."""
        rows, session = self._rows.where(F.col(_NUMBER).isin([*self._errors])), self._rows.sparkSession
        said = [(number, error.getCondition(), str(error)[:LONGEST]) for number, error in self._errors.items()]
        known = session.createDataFrame(said, f"{_NUMBER} long, _error string, _message string")
        where = failure(REFUSED, f"sink {self._transaction.sink}").alias(FAILURE)
        outputs = F.lit(self._transaction.sink).alias(OUTPUTS)
        found = rows.join(F.broadcast(known), _NUMBER)
        return found.select(ORIGINAL, where, *carried(rows), "_error", "_message", outputs)

    def _found(self, error: RefusedRowsError) -> dict[int, RefusedRowsError]:
        """The sink's error for each row that it refuses, by the row's number."""
        numbers = sorted(row[0] for row in self._rows.select(_NUMBER).collect())
        found: dict[int, RefusedRowsError] = {}
        waiting = [(0, len(numbers))]
        while waiting:
            first, end = waiting.pop()
            said = self._said(numbers[end - 1], [*found])
            if said is None:
                continue
            if end - first > 1:
                middle = (first + end) // 2
                waiting += [(middle, end), (first, middle)]
                continue
            found[numbers[first]] = said
            if len(found) > MOST:
                message = f"{error} More than {MOST} rows of the epoch are refused, too many for dead letters."
                raise RefusedRowsError(message) from error
        return found

    def _said(self, last: int, refused: Sequence[int]) -> RefusedRowsError | None:
        """The sink's error for the rows up to one, without some: earlier rows are tried too, as rows may conflict."""
        transaction = self.next_transaction()
        try:
            rows = self._others(last, refused)
            self._committer.prepare_tried(transaction.sink, rows, transaction, self._earlier)
        except RefusedRowsError as error:
            return error
        finally:
            self._committer.abort([transaction])
        return None

    def _others(self, last: int | None, refused: Sequence[int] | None = None) -> DataFrame:
        left_out = F.col(_NUMBER).isin([*(self._errors if refused is None else refused)])
        rows = self._rows.where(~left_out) if last is None else self._rows.where((F.col(_NUMBER) <= last) & ~left_out)
        return rows.drop(_NUMBER, ORIGINAL, *self._hidden)
