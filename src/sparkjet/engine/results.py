"""What an epoch has computed: aggregation by aggregation, from partial rows to the rows that each output gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT
from sparkjet.engine.partial_aggregation import aggregate
from sparkjet.time import MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.partial_aggregation import PartialAggregation
    from sparkjet.engine.state import QueryState
    from sparkjet.plan.plan import Output, Plan
    from sparkjet.plan.windowed_aggregation import WindowedAggregation


class Results:
    """The rows of one epoch; made at its beginning, released at its end whatever happens.

    The driver calls :meth:`accept` for each aggregation that reads the input, then one of :meth:`close` and
    :meth:`close_all`, then takes the rows.
    """

    def __init__(self, plan: Plan, state: QueryState) -> None:
        self._plan = plan
        self._state = state
        self._rows: dict[str, DataFrame | None] = {}
        self._held: list[DataFrame] = []
        self.outcomes: dict[str, PartialAggregation] = {}

    def accept(self, name: str, outcome: PartialAggregation) -> None:
        """Hand the partial rows of an aggregation to its operator."""
        self.outcomes[name] = outcome
        self._state.aggregations[name].append(outcome)

    def close(self, watermark: int) -> None:
        """Close windows up to the watermark, each aggregation's results going into the aggregations that read them."""
        for name, aggregation in self._plan.aggregations.items():
            self._feed(name, aggregation)
            self._close(name, aggregation, watermark - aggregation.lag if watermark > MIN else MIN)

    def close_all(self) -> None:
        """Close whatever is open, and raise the watermark so far that nothing of it can be opened again."""
        highest = self._state.tracker.watermark
        for name, aggregation in self._plan.aggregations.items():
            self._feed(name, aggregation)
            until = self._state.aggregations[name].operator.open_until
            if until is not None:
                highest = max(highest, until + aggregation.lag)
            self._close(name, aggregation, MIN if until is None else until)
        self._state.tracker.force(highest)
        for name, aggregation in self._plan.aggregations.items():
            self._state.aggregations[name].operator.skip_to(highest - aggregation.lag)

    def rows(self, output: Output, *, early: bool) -> DataFrame | None:
        """The final rows for an output, with early ones of what is still open if wanted; None if there are none."""
        name = self._name(output.aggregation)
        final = self._rows[name]
        rows = None if final is None else output.finished(final)
        if early:
            windows = self._state.aggregations[name].operator.early()
            if windows is not None:
                added = output.finished(output.aggregation.output(windows), early=True)
                rows = added if rows is None else rows.unionByName(added)
        return rows

    def late_rows(self, output: Output, watermark: int | None) -> DataFrame | None:
        """The rows that an aggregation dropped, judged by ``watermark``; None if there are none."""
        outcome = self.outcomes.get(self._name(output.aggregation))
        rows = None if outcome is None else outcome.late_rows(watermark)
        return None if rows is None else output.finished(rows)

    def release(self) -> None:
        """Let go of everything that was held in memory for this epoch; a second call does nothing."""
        for outcome in self.outcomes.values():
            outcome.release()
        while self._held:
            self._held.pop().unpersist()

    def _feed(self, name: str, aggregation: WindowedAggregation) -> None:
        """Aggregate what the aggregation above has just emitted."""
        if aggregation.parent is None:
            return
        rows = self._rows[self._name(aggregation.parent)]
        if rows is not None:
            shaped = aggregation.transformations.apply(rows).withColumn(KEPT, F.lit(True))
            self.accept(name, aggregate(shaped, aggregation, self._state.aggregations[name].operator))

    def _close(self, name: str, aggregation: WindowedAggregation, watermark: int) -> None:
        windows = self._state.aggregations[name].operator.close(watermark)
        rows = None if windows is None else aggregation.output(windows)
        if rows is not None and self._plan.consumers(name) > 1:
            # Each consumer would compute the windows again.
            rows = rows.persist()
            self._held.append(rows)
        self._rows[name] = rows

    def _name(self, aggregation: WindowedAggregation) -> str:
        return next(name for name, each in self._plan.aggregations.items() if each is aggregation)
