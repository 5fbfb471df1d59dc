"""The expectations of an epoch: how many rows have not met each, and the end of the query if one requires it."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.expressions import redacted
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.errors import ExpectationError
from sparkjet.plan.expectations import NAME, ROW, Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkjet.engine.input_batch import InputBatch
    from sparkjet.plan.expectations import Expectation
    from sparkjet.plan.plan import Plan

_LONGEST = 1000
"""Maximum number of characters of a row in an error."""


class Expectations:
    """The expectations that rows of one epoch have not met, on the driver.

    Args:
        plan: The query's plan.
        moment: The seeds and the time of the epoch.
    """

    def __init__(self, plan: Plan, moment: Moment = AS_IT_IS) -> None:
        self._plan = plan
        self._moment = moment
        self.violated: Counter[str] = Counter()
        """Number of rows by the name of the first expectation that they have not met."""

    def of_input(self, arrived: InputBatch) -> None:
        """Count the rows of a batch."""
        found = [
            frame
            for source, each in self._plan.expected
            for frame in each.violations(
                self._plan.sources.rows(arrived.rows, source),
                # The same rows as those that are passed on, or become dead letters.
                arrived.tried(each.chain, source) if each.tried else None,
                self._plan.shared,
            )
        ]
        self._count(found, (each for _, expected in self._plan.expected for each in expected.all), "input")

    def counts(self, reader: str) -> bool:
        """Whether expectations are counted for a reader of a stage's results."""
        return reader in self._plan.expected_of

    def of_results(self, reader: str, rows: DataFrame, tried: DataFrame | None = None) -> None:
        """Count the rows of a stage on their way to an output, or to the next stage."""
        expected = self._plan.expected_of[reader]
        self._count(expected.violations(rows, tried), expected.all, reader)

    def _count(self, found: list[DataFrame], expectations: Iterable[Expectation], reader: str) -> None:
        if not found:
            return
        rows = self._moment.of(reduce(DataFrame.unionAll, found), "expected", reader)
        # Of several rows the same one each time, whatever their order.
        counted = rows.groupBy(NAME).agg(F.count(F.lit(1)), F.min(ROW)).collect()
        rows_of = {name: (count, example) for name, count, example in counted}
        for each in expectations:
            count, example = rows_of.get(each.name, (0, ""))
            if count and each.action is Action.FAIL:
                # As for dead letters: errors appear in logs and pages, and a text in a condition may be a secret key.
                condition = redacted(each.condition, self._plan.source.sparkSession)
                message = (
                    f"expect: {count} rows of the epoch do not meet {each.name!r} ({condition}), which ends the query. "
                    f"Nothing of the epoch was written. One of them: {example[:_LONGEST]}. Correct the input or the "
                    'query and start again; with action="drop" or "divert" such rows do not end it.'
                )
                raise ExpectationError(message)
            self.violated[each.name] += count
