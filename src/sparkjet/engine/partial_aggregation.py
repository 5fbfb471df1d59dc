"""Partial aggregation: a batch of rows becomes partial rows, counts of dropped rows and highest event times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, ONLY_SUBSTREAM, SUBSTREAM, TIME
from sparkjet.plan.dropped_rows import dropped_rows, judged
from sparkjet.plan.partial_rows import ProgressDetail, RowKind, accepted
from sparkjet.windows import SegmentStatistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.outputs import StreamOutput
    from sparkjet.plan.plan import Plan
    from sparkjet.plan.windowed_aggregation import WindowedAggregation
    from sparkjet.windows import WindowOperator


@dataclass
class PartialAggregation:
    """What partial aggregation of one window has found.

    Attributes:
        table: Partial rows and counts of dropped rows in one local checkpoint.
        statistics: Of the partial rows; None if every row was dropped.
        accepted: Number of accepted rows.
        late: Late rows by substream.
        null_timestamps: Rows without an event time by substream.
        highest: Highest event time by substream, null for the only one; what the plan's ``detail`` asks for.
        rows: The judged rows, persisted until :meth:`release`; None unless late rows are delivered.
    """

    table: DataFrame
    statistics: SegmentStatistics | None = None
    accepted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    highest: dict[str, int] = field(default_factory=dict)
    rows: DataFrame | None = None

    @property
    def partials(self) -> DataFrame:
        """The partial rows of the accepted rows, partitioned as the state is."""
        return accepted(self.table)

    @property
    def dropped(self) -> bool:
        """Whether any row was dropped."""
        return bool(self.late or self.null_timestamps)

    def late_rows(self, watermark: int | None) -> DataFrame | None:
        """The dropped rows as they came, None if there are none."""
        return None if self.rows is None or not self.dropped else dropped_rows(self.rows, watermark)

    def release(self) -> None:
        """Unpersist the rows; a second call does nothing."""
        if self.rows is not None:
            self.rows.unpersist()
            self.rows = None


class InputBatch:
    """A batch on its way to aggregations and outputs, read from its source once.

    Where only one aggregation reads it, and the rows that its filters drop can travel on marked, partial aggregation
    itself finds how far each substream has come. Otherwise the batch is persisted in memory and read once more. Where
    only one output reads it, nothing is done but what Spark itself would do.

    Args:
        batch: The batch as Spark gives it to ``foreachBatch``.
        plan: The query's plan.
    """

    def __init__(self, batch: DataFrame, plan: Plan) -> None:
        self._plan = plan
        self._batch = batch
        self._held = plan.persisted
        if plan.persisted:
            # The source would be read, and a user's Python function run, once for every branch and result.
            self._batch = plan.begun(batch).persist()

    def rows(self, aggregation: WindowedAggregation) -> DataFrame:
        """The rows as an aggregation aggregates them."""
        if self._plan.persisted:
            return aggregation.transformations.apply(self._batch, after=self._plan.shared).withColumn(KEPT, F.lit(True))
        return aggregation.transformations.marked(self._batch)

    def output(self, output: StreamOutput) -> DataFrame:
        """The rows of an output of the stream itself."""
        rows = output.chain.apply(self._batch, after=self._plan.shared)
        return rows.drop(*HIDDEN) if self._plan.aggregations else rows

    def highest(self, partials: Iterable[PartialAggregation]) -> dict[str, int]:
        """Highest event time of each substream that had one, whatever the user's filters drop."""
        if self._plan.persisted:
            found = self._batch.where(F.col(TIME).isNotNull()).groupBy(SUBSTREAM).agg(F.max(TIME)).collect()
            return {row[0]: row[1] for row in found}
        return {name: time for partial in partials for name, time in partial.highest.items()}

    def release(self) -> None:
        """Unpersist the rows; a second call does nothing."""
        if self._held:
            self._held = False
            self._batch.unpersist()


def aggregate(
    rows: DataFrame,
    aggregation: WindowedAggregation,
    operator: WindowOperator,
    detail: ProgressDetail = ProgressDetail.NOTHING,
    *,
    keep_rows: bool = False,
) -> PartialAggregation:
    """Run partial aggregation of one window as one Spark job over its rows.

    Lateness is judged by the operator's state at the start of the epoch, so that a re-run judges each row the same way.

    Args:
        rows: What has gone through the aggregation's transformations, with ``KEPT``.
        aggregation: The aggregation.
        operator: Its operator.
        detail: What to find out about event time.
        keep_rows: Whether the dropped rows are wanted.
    """
    judged_rows = judged(rows, operator)
    if keep_rows:
        judged_rows = judged_rows.persist()
    try:
        partial_rows = aggregation.partial_rows.of(judged_rows, operator, detail)
        partial = PartialAggregation(operator.partitioned(partial_rows))
        _count(partial, aggregation, detail)
    except BaseException:
        judged_rows.unpersist()
        raise
    partial.rows = judged_rows if keep_rows else None
    return partial


def _count(partial: PartialAggregation, aggregation: WindowedAggregation, detail: ProgressDetail) -> None:
    # From the aggregated table: an accumulator or an observation counts the rows of a retried task twice.
    labels, sums = aggregation.partial_rows.totals
    totals = sums.agg(partial.table, labels)
    for kind, *named, rows, low, high, events, highest in totals.collect():
        substream = named[0] if named else ONLY_SUBSTREAM
        if kind == RowKind.ACCEPTED:
            partial.statistics = SegmentStatistics(rows, low, high)
            partial.accepted = events
        elif kind != RowKind.PROGRESS_ONLY:
            (partial.late if kind == RowKind.LATE else partial.null_timestamps)[substream] += events
        if highest is not None and (
            detail is ProgressDetail.ALL or (detail is ProgressDetail.EACH and kind == RowKind.PROGRESS_ONLY)
        ):
            partial.highest[substream] = max(highest, partial.highest.get(substream, highest))
