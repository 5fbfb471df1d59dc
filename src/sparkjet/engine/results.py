"""The results of an epoch: aggregation by aggregation, from partial rows to the rows that each output gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT
from sparkjet.engine.partial_aggregation import aggregate
from sparkjet.time import MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.changes import Changes
    from sparkjet.engine.partial_aggregation import PartialAggregation
    from sparkjet.engine.state import QueryState
    from sparkjet.plan.plan import Plan, PlannedAggregation, PlannedOutput


class Results:
    """The rows of one epoch; made at its beginning, released at its end whatever happens.

    The driver calls :meth:`accept` for each aggregation that reads the input, then one of :meth:`close` and
    :meth:`close_all`, then takes the rows.
    """

    def __init__(self, plan: Plan, state: QueryState) -> None:
        self._plan = plan
        self._state = state
        self._rows: dict[str, DataFrame | None] = {}
        self._persisted: list[DataFrame] = []
        self.accepted: dict[str, PartialAggregation] = {}
        """What :meth:`accept` was given, by name of the aggregation."""

    def accept(self, name: str, partial: PartialAggregation) -> None:
        """Hand the partial rows of an aggregation to its operator."""
        self.accepted[name] = partial
        self._state.aggregations[name].append(partial)

    def close(self, watermark: int) -> None:
        """Close windows up to the watermark, each aggregation's results going into the aggregations that read them."""
        for aggregation in self._plan.aggregations:
            self._feed(aggregation)
            self._close(aggregation, watermark - aggregation.lag if watermark > MIN else MIN)

    def close_all(self) -> None:
        """Close whatever is open, and raise the watermark so far that nothing of it can be opened again."""
        highest = self._state.tracker.watermark
        for aggregation in self._plan.aggregations:
            self._feed(aggregation)
            until = self._state.aggregations[aggregation.name].operator.open_until
            if until is not None:
                highest = max(highest, until + aggregation.lag)
            self._close(aggregation, MIN if until is None else until)
        self._state.tracker.force(highest)
        for aggregation in self._plan.aggregations:
            self._state.aggregations[aggregation.name].operator.skip_to(highest - aggregation.lag)

    def rows(self, output: PlannedOutput) -> DataFrame | None:
        """The final rows for an output; None if there are none."""
        final = self._rows[output.aggregation.name]
        return None if final is None else output.finished(final)

    def changed_rows(self, output: PlannedOutput, changes: Changes, *, early: bool) -> DataFrame | None:
        """The rows for an output in update mode that have changed since they were last sent; None if there are none.

        Args:
            output: The output. If it marks early rows, all final ones come as well.
            changes: What it has not been sent.
            early: Whether rows of windows that are still open are due.
        """
        name = output.aggregation.name
        changes.arrived(self.accepted.get(name))
        final = self._rows[name]
        if final is not None and not output.marks_early:
            final = changes.of(final)
        rows = None if final is None else output.finished(final)
        windows = self._state.aggregations[name].operator.early() if early else None
        changed = None if windows is None else changes.of(output.aggregation.output(windows))
        if changed is not None:
            added = output.finished(changed, early=True)
            rows = added if rows is None else rows.unionByName(added)
        return rows

    def late_rows(self, output: PlannedOutput, watermark: int | None) -> DataFrame | None:
        """The rows that an aggregation dropped, judged by ``watermark``; None if there are none."""
        partial = self.accepted.get(output.aggregation.name)
        rows = None if partial is None else partial.late_rows(watermark)
        return None if rows is None else output.finished(rows)

    def release(self) -> None:
        """Release everything that was held in memory for this epoch; a second call does nothing."""
        for partial in self.accepted.values():
            partial.release()
        while self._persisted:
            self._persisted.pop().unpersist()

    def _feed(self, aggregation: PlannedAggregation) -> None:
        """Aggregate what the aggregation above has just emitted."""
        if aggregation.parent is None:
            return
        rows = self._rows[aggregation.parent.name]
        if rows is not None:
            shaped = aggregation.transformations.apply(rows).withColumn(KEPT, F.lit(True))
            operator = self._state.aggregations[aggregation.name].operator
            self.accept(aggregation.name, aggregate(shaped, aggregation, operator))

    def _close(self, aggregation: PlannedAggregation, watermark: int) -> None:
        windows = self._state.aggregations[aggregation.name].operator.close(watermark)
        rows = None if windows is None else aggregation.output(windows)
        if rows is not None and self._plan.consumers(aggregation) > 1:
            # Each consumer would compute the windows again.
            rows = rows.persist()
            self._persisted.append(rows)
        self._rows[aggregation.name] = rows
