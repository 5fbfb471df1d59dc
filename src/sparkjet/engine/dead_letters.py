"""Dead letters: the rows of an epoch of which an expression behind ``divert`` has raised, and what it said."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, FAILURE, ORIGINAL, SUBSTREAM
from sparkjet.catalyst.python_calls import said_by
from sparkjet.catalyst.tries import Said, one_by_one, said
from sparkjet.errors import FailuresError
from sparkjet.plan.diverting import ADDED, CAUSE, PLACE, STEP, begun, failed
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkjet.catalyst.moments import Moment
    from sparkjet.plan.plan import DivertedChain, PlannedDeadLetters

EXPLAINED = 10
"""Rows of an epoch of which it is found out what was said; each is computed once more, by itself."""
_WHICH, _STEP, _CHAIN = "_sparkjet_which", "_sparkjet_step", "_sparkjet_chain"
_KEYS = (_WHICH, _STEP, _CHAIN)
_SAID = f"{_WHICH} long, {_STEP} int, {_CHAIN} int, _error string, _message string, _trace string"


class DeadLetters:
    """The dead letters of one epoch, on the driver.

    Args:
        output: Where they go.
        batch: The batch, as the readers of its sources get it.
        tried: The rows at the end of a chain, failed ones among them.
        moment: The seeds and the time of the epoch.
    """

    def __init__(
        self,
        output: PlannedDeadLetters,
        batch: DataFrame,
        tried: Callable[[DivertedChain], DataFrame],
        moment: Moment,
    ) -> None:
        self._output = output
        self._batch = batch
        self.counts: Counter[str] = Counter()
        """How many rows have failed where, once :meth:`rows` has asked."""
        found = [
            moment.of(failed(tried(each), each.first).withColumn(_CHAIN, F.lit(number)), "failed", number)
            for number, each in enumerate(output.diverted)
        ]
        # Rows that are equal say the same. As text, as there are types that have no hash.
        keys = {_WHICH: F.xxhash64(F.col(ORIGINAL).cast("string")), _STEP: F.col(f"{FAILURE}.{STEP}")}
        self._failed = reduce(DataFrame.unionAll, found).withColumns(keys)

    def held(self) -> DataFrame:
        """The failed rows, held in memory from now on: they are asked for several times."""
        self._failed = self._failed.persist()
        return self._failed

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
        self.counts.update(dict(self._failed.groupBy(f"{FAILURE}.{PLACE}").count().collect()))
        session = self._failed.sparkSession
        known = session.createDataFrame([(*keys, *found) for keys, found in self._explained()], _SAID)
        values = {
            "_stage": F.col(f"{FAILURE}.{PLACE}"),
            "_substream": F.col(SUBSTREAM),
            "_epoch": F.lit(epoch).cast("bigint"),
        }
        for name, raised in said_by(F.col(f"{FAILURE}.{CAUSE}")).items():
            values[f"_{name}"] = F.coalesce(raised, F.col(f"_{name}"))
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
            message = self._one_of_them()
            quoted = f"One of them said: {message} " if message else ""
            message = (
                f"{self._output.name}: {count} rows of the epoch have failed, more than maxFailures={given!r} allows. "
                f"Nothing of the epoch was written. {quoted}Mend what has failed and start again, or allow more."
            )
            raise FailuresError(message)

    def _one_of_them(self) -> str | None:
        """What one of the rows has said."""
        cause = F.col(f"{FAILURE}.{CAUSE}")
        (message,) = self._failed.select(said_by(cause)["message"]).take(1)[0]
        return message or next((found.message for _, found in self._explained(1)), None)

    def _explained(self, most: int = EXPLAINED) -> Iterator[tuple[tuple[int, int, int], Said]]:
        """What some of the rows have said, by their keys."""
        # What a Python function has raised is known already.
        unknown = self._failed.where(F.coalesce(F.length(f"{FAILURE}.{CAUSE}"), F.lit(0)) == 0)
        some = unknown.select(*_KEYS, ORIGINAL, *CARRIED).dropDuplicates([*_KEYS]).limit(most)
        for row, alone in one_by_one(some):
            which, step, chain = row.getLong(0), row.getInt(1), row.getInt(2)
            yield (which, step, chain), self._said(alone.select(f"{ORIGINAL}.*", *CARRIED), step, chain)

    def _said(self, row: DataFrame, step: int, chain: int) -> Said:
        links = [link for link in self._output.diverted[chain].links if link.number <= step]
        if not any(link.calls for link in links):
            for link in links:
                row = (link.alone or link.plain)(row)
            return said(row)
        # Spark's optimizer calls no Python function: up to the link that raised, and for its own calls, a job does.
        row = begun(row)
        *before, last = links
        for link in before:
            assert link.tried is not None  # noqa: S101 - others are refused behind divert
            row = link.tried(row, link.number)
        tries = last.tries() if last.calls and last.tries is not None else None
        ((_, alone),) = one_by_one(row if tries is None else tries.prepared(row))
        return said((last.alone or last.plain)(alone) if tries is None else tries.raising(alone))


def share_of(share: float, count: int) -> int:
    """How many rows a share of them is, as the user wrote it.

    >>> share_of(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(str(share)) * count)
