"""Dead letters: the rows of an epoch of which an expression behind ``divert`` has raised, and what it said."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, FAILURE, ORIGINAL, SUBSTREAM
from sparkjet.catalyst.tries import Said, one_by_one, said
from sparkjet.errors import FailuresError
from sparkjet.plan.diverting import ADDED, PLACE, STEP, failed
from sparkjet.plan.expectations import VIOLATION, Action, expected, is_violation
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkjet.catalyst.moments import Moment
    from sparkjet.plan.plan import DivertedChain, Plan, PlannedDeadLetters

EXPLAINED = 10
"""Rows of an epoch of which it is found out what was said; each is computed once more, by itself."""
_WHICH, _STEP, _CHAIN = "_sparkjet_which", "_sparkjet_step", "_sparkjet_chain"
_KEYS = (_WHICH, _STEP, _CHAIN)
_VIOLATED = "_sparkjet_violated"
"""Whether nothing was raised, and the row has not met an expectation."""
_SAID = f"{_WHICH} long, {_STEP} int, {_CHAIN} int, _error string, _message string, _trace string"


class DeadLetters:
    """The dead letters of one epoch, on the driver.

    Args:
        plan: The query's plan.
        output: Where they go.
        batch: The batch, as the readers of its sources get it.
        moment: The seeds and the time of the epoch.
    """

    def __init__(self, plan: Plan, output: PlannedDeadLetters, batch: DataFrame, moment: Moment) -> None:
        self._output = output
        self._batch = batch
        found = [
            moment.of(_letters(plan.tried(batch, each), each).withColumn(_CHAIN, F.lit(number)), "failed", number)
            for number, each in enumerate(output.diverted)
        ]
        # Rows that are equal say the same. As text, as there are types that have no hash.
        keys = {_WHICH: F.xxhash64(F.col(ORIGINAL).cast("string")), _STEP: F.col(f"{FAILURE}.{STEP}")}
        self._failed = reduce(DataFrame.unionAll, found).withColumns(keys)

    def rows(self, epoch: int) -> DataFrame | None:
        """The dead letters as their sink gets them; None if there are none.

        Raises:
            FailuresError: More rows have failed than the user allows.
        """
        count = self._failed.count()
        if not count:
            return None
        self._check(count)
        logger.warning("%s: %d rows of epoch %d have failed and are dead letters", self._output.name, count, epoch)
        session = self._failed.sparkSession
        known = session.createDataFrame([(*keys, *found) for keys, found in self._explained()], _SAID)
        values = {
            "_stage": F.col(f"{FAILURE}.{PLACE}"),
            "_error": F.when(F.col(_VIOLATED), VIOLATION).otherwise(F.col("_error")),
            "_substream": F.col(SUBSTREAM),
            "_epoch": F.lit(epoch).cast("bigint"),
        }
        added = [values.get(name, F.col(name)).alias(name) for name in ADDED]
        letters = self._failed.join(F.broadcast(known), [*_KEYS], "left")
        return self._output.finishing(letters.select(f"{ORIGINAL}.*", *added))

    def _check(self, count: int) -> None:
        divert = self._output.chain.divert
        if divert is None or (divert.most is None and divert.share is None):
            return
        given = divert.most if divert.share is None else divert.share
        # Of the rows that have been read, also those that a filter drops.
        allowed = divert.most if divert.share is None else share_of(divert.share, self._batch.count())
        if allowed is not None and count > allowed:
            _, found = next(self._explained(1), (None, Said()))
            quoted = "" if found.message is None else f"One of them said: {found.message} "
            message = (
                f"{self._output.name}: {count} rows of the epoch have failed, more than maxFailures={given!r} allows. "
                f"Nothing of the epoch was written. {quoted}Mend what has failed and start again, or allow more."
            )
            raise FailuresError(message)

    def _explained(self, most: int = EXPLAINED) -> Iterator[tuple[tuple[int, int, int], Said]]:
        """What some of the rows have said, by their keys."""
        some = (
            self._failed.where(~F.col(_VIOLATED))
            .select(*_KEYS, ORIGINAL, *CARRIED)
            .dropDuplicates([*_KEYS])
            .limit(most)
        )
        for row, alone in one_by_one(some):
            which, step, chain = row.getLong(0), row.getInt(1), row.getInt(2)
            yield (which, step, chain), self._said(alone.select(f"{ORIGINAL}.*", *CARRIED), step, chain)

    def _said(self, row: DataFrame, step: int, chain: int) -> Said:
        for link in self._output.diverted[chain].links:
            if link.number <= step:
                row = link.plain(row)
        return said(row)


def _letters(tried: DataFrame, diverted: DivertedChain) -> DataFrame:
    """The rows of a chain that are dead letters; not those that an expectation drops, or that it ends the query for."""
    rows = failed(tried, diverted.first)
    dropped = is_violation(expected(diverted.links, Action.DROP, Action.FAIL))
    return rows.where(~dropped).withColumn(_VIOLATED, is_violation(expected(diverted.links)))


def share_of(share: float, count: int) -> int:
    """How many rows a share of them is, as the user wrote it.

    >>> share_of(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(str(share)) * count)
