"""Dead letters: the rows of an epoch for which an expression after ``divert`` has raised, with the error."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.catalyst.columns import CARRIED, FAILURE, ORIGINAL, SUBSTREAM
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.catalyst.python_calls import said_by
from sparkjet.catalyst.tries import Said, one_by_one, said, tried
from sparkjet.errors import FailuresError
from sparkjet.plan.diverting import ADDED, CAUSE, OUTPUTS, PLACE, STEP, begun, failed, untimed
from sparkjet.plan.expectations import VIOLATION, Action, expected, is_violation
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column

    from sparkjet.engine.input_batch import InputBatch
    from sparkjet.engine.results import Results
    from sparkjet.plan.plan import DivertedChain, PlannedDeadLetters

EXPLAINED = 10
"""Number of rows of an epoch whose errors are determined; each of them is computed once more, separately."""
_WHICH, _STEP, _CHAIN = "_sparkjet_which", "_sparkjet_step", "_sparkjet_chain"
_KEYS = (_WHICH, _STEP, _CHAIN)
_VIOLATED = "_sparkjet_violated"
"""Whether nothing was raised, but the row has not met an expectation."""
_SAID = f"{_WHICH} long, {_STEP} int, {_CHAIN} int, _error string, _message string, _trace string"


class DeadLetters:
    """The dead letters of one epoch, on the driver.

    Args:
        output: Their output.
        arrived: The input that has arrived; None in an epoch without a batch.
        results: The results of the epoch.
        moment: The seeds and the time of the epoch.
    """

    def __init__(
        self,
        output: PlannedDeadLetters,
        arrived: InputBatch | None,
        results: Results | None = None,
        moment: Moment = AS_IT_IS,
    ) -> None:
        self._output = output
        self._arrived = arrived
        self._results = results
        self.counts: Counter[str] = Counter()
        """Number of failed rows by place, once :meth:`rows` was called."""
        found = []
        for number, each in enumerate(output.diverted):
            tried = self._tried(each)
            if tried is not None:
                letters = _letters(tried, each).withColumn(_CHAIN, F.lit(number))
                found.append(moment.of(letters, "failed", output.name, number))
        self._failed = _numbered(reduce(DataFrame.unionAll, found)) if found else None
        if self._failed is not None and arrived is not None:
            self._failed = arrived.held(self._failed)

    def rows(self, epoch: int, refused: Sequence[DataFrame] = ()) -> DataFrame | None:
        """The dead letters as their sink gets them; None if there are none."""
        count = 0
        if self._failed is not None:
            self.counts = _by_place(self._failed)
            count = self.counts.total()
        for each in refused:
            self.counts += _by_place(each)
        if not self.counts:
            return None
        self._check(self.counts.total())
        values = {
            "_stage": F.col(f"{FAILURE}.{PLACE}"),
            "_substream": F.col(SUBSTREAM),
            "_epoch": F.lit(epoch).cast("bigint"),
        }
        found = [_shaped(each.withColumn("_trace", F.lit(None).cast("string")), values) for each in refused]
        if self._failed is not None and count:
            logger.warning("%s: %d rows of epoch %d have failed and are dead letters", self._output.name, count, epoch)
            session = self._failed.sparkSession
            known = session.createDataFrame([(*keys, *said) for keys, said in self._explained()], _SAID)
            letters = self._failed.join(F.broadcast(known), [*_KEYS], "left")
            for name, raised in said_by(F.col(f"{FAILURE}.{CAUSE}")).items():
                values[f"_{name}"] = F.coalesce(raised, F.col(f"_{name}"))
            error = F.when(F.col(_VIOLATED), VIOLATION).otherwise(values["_error"])
            found.append(_shaped(letters, {**values, "_error": error}))
        return self._output.finishing(reduce(DataFrame.unionAll, found))

    def _tried(self, diverted: DivertedChain) -> DataFrame | None:
        """The rows at the end of a chain, including failed ones; None if there are certainly none."""
        if not isinstance(diverted.source, int):
            return None if self._results is None else self._results.tried(diverted.source)
        if self._arrived is None or not self._arrived.may_have_failed:
            return None
        return self._arrived.tried(diverted.chain, diverted.source)

    def _check(self, count: int) -> None:
        divert = self._output.chain.divert
        if divert is None or (divert.most is None and divert.share is None):
            return
        given = divert.most if divert.share is None else divert.share
        # A share of all rows that were read, including those that a filter drops.
        allowed = divert.most if divert.share is None else share_of(divert.share, self._read())
        if allowed is not None and count > allowed:
            message = self._one_of_them()
            quoted = f"One of them said: {message} " if message else ""
            message = (
                f"{self._output.name}: {count} rows of the epoch have failed, more than maxFailures={given!r} allows. "
                f"Nothing of the epoch was written. {quoted}Fix what has failed and start again, or allow more."
            )
            raise FailuresError(message)

    def _one_of_them(self) -> str | None:
        """The error of one of the rows."""
        cause = F.col(f"{FAILURE}.{CAUSE}")
        raised = [] if self._failed is None else self._failed.select(said_by(cause)["message"]).take(1)
        message = next((each for (each,) in raised), None)
        return message or next((found.message for _, found in self._explained(1)), None)

    def _read(self) -> int:
        """The number of rows that have been read."""
        sources = [each for each in self._output.diverted if isinstance(each.source, int)]
        if sources:
            return 0 if self._arrived is None else self._arrived.rows.count()
        found = [self._tried(each) for each in self._output.diverted]
        return sum(each.count() for each in found if each is not None)

    def _explained(self, most: int = EXPLAINED) -> Iterator[tuple[tuple[int, int, int], Said]]:
        """The errors of some of the rows, by their keys."""
        if self._failed is None:
            return
        # Errors of Python functions are already known, and a row that violates an expectation has raised nothing.
        unknown = self._failed.where(~F.col(_VIOLATED) & (F.coalesce(F.length(f"{FAILURE}.{CAUSE}"), F.lit(0)) == 0))
        some = unknown.select(*_KEYS, ORIGINAL, *CARRIED).dropDuplicates([*_KEYS]).limit(most)
        for row, alone in one_by_one(some):
            which, step, chain = row.getLong(0), row.getInt(1), row.getInt(2)
            yield (which, step, chain), self._said(self._original.select(alone), step, chain)

    @cached_property
    def _original(self) -> IdentifiedColumns:
        """Restores a row as it was at ``divert``, where later links may refer to its columns by an alias."""
        at = self._output.chain.diverted_shape
        columns = [F.col(ORIGINAL).getField(name) for name in at.columns]
        return IdentifiedColumns([*columns, *map(F.col, CARRIED)], at.withColumns(untimed()))

    def _said(self, row: DataFrame, step: int, chain: int) -> Said:
        links = [link for link in self._output.diverted[chain].links if link.number <= step]
        if not any(link.calls for link in links):
            for link in links:
                row = (link.alone or link.plain)(row)
            return said(row)
        # Spark's optimizer calls no Python function, so a job runs the links up to the one that raised, and its calls.
        row = begun(row)
        *before, last = links
        for link in before:
            assert link.tried is not None  # noqa: S101 - others are refused after divert
            row = link.tried(row, link.number)
        tries = last.tries() if last.calls and last.tries is not None else None
        ((_, alone),) = one_by_one(row if tries is None else tries.prepared(row))
        return said((last.alone or last.plain)(alone) if tries is None else tries.raising(alone))


def _letters(tried: DataFrame, diverted: DivertedChain) -> DataFrame:
    """The dead letters among a chain's rows; not those that an expectation drops, or for which it fails the query."""
    rows = failed(tried, diverted.first)
    dropped = is_violation(expected(diverted.links, Action.DROP, Action.FAIL))
    step, texts = F.col(f"{FAILURE}.{STEP}"), sorted({*diverted.lacking.values()})
    steps = {text: [number for number, each in diverted.lacking.items() if each == text] for text in texts}
    # With a null, as nothing may be computed after divert that could raise.
    named = (F.when(step.isin(each), F.lit(text)) for text, each in steps.items())
    lacking = F.coalesce(F.lit(None).cast("string"), *named)
    added = {_VIOLATED: is_violation(expected(diverted.links)), OUTPUTS: lacking}
    return rows.where(~dropped).withColumns(added)


def _numbered(rows: DataFrame) -> DataFrame:
    """Rows with a common key for those with the same error: rows that are equal and have failed at the same link."""
    # As text, as some types have no hash. Each column is tried separately: a malformed VARIANT has no text.
    texts = (F.col(ORIGINAL).getField(field.name).cast("string") for field in _original(rows).fields)
    which = F.xxhash64(*(tried(text, rows.sparkSession) for text in texts))
    return rows.withColumns({_WHICH: which, _STEP: F.col(f"{FAILURE}.{STEP}")})


def _original(rows: DataFrame) -> StructType:
    kind = rows.schema[ORIGINAL].dataType
    assert isinstance(kind, StructType)  # noqa: S101 - begun() has made one
    return kind


def _by_place(rows: DataFrame) -> Counter[str]:
    """The number of failed rows by place."""
    return Counter(dict(rows.groupBy(f"{FAILURE}.{PLACE}").count().collect()))


def _shaped(rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    return rows.select(f"{ORIGINAL}.*", *(values.get(name, F.col(name)).alias(name) for name in ADDED))


def share_of(share: float, count: int) -> int:
    """The number of rows that a share of them is, exactly as the user wrote the share.

    >>> share_of(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(str(share)) * count)
