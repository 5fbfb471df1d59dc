"""Stage 1 of an epoch: a batch of events becomes partial rows, drop counts and highest event times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import KEPT, ONLY_SUBSTREAM, SUBSTREAM, TIME
from sparkjet.plan.windowed_aggregation import Seen, Verdict, dropped_rows
from sparkjet.windows import SegmentStatistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.plan import Plan
    from sparkjet.plan.windowed_aggregation import Stage
    from sparkjet.windows import WindowOperator


@dataclass
class Aggregation:
    """Outcome of stage 1 for one window.

    Attributes:
        table: Partial rows and counts of dropped rows in one local checkpoint.
        statistics: Of the partial rows; None if every row was dropped.
        accepted: Number of accepted rows.
        late: Late rows by substream.
        null_timestamps: Rows without an event time by substream.
        highest: Highest event time by substream, null for the only one; what the plan's ``seen`` asks for.
        rows: The rows with their verdict, held until :meth:`release`; None unless late rows are delivered.
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
        return self.table.where(f"verdict = {Verdict.ACCEPTED.value}").drop("verdict", "substream", "highest")

    @property
    def dropped(self) -> bool:
        """Whether any row was dropped."""
        return bool(self.late or self.null_timestamps)

    def late_rows(self, watermark: int | None) -> DataFrame | None:
        """The dropped rows as they came, None if there are none."""
        return None if self.rows is None or not self.dropped else dropped_rows(self.rows, watermark)

    def release(self) -> None:
        """Let the rows go; a second call does nothing."""
        if self.rows is not None:
            self.rows.unpersist()
            self.rows = None


class InputBatch:
    """A batch on its way through the first stages, read from its source once.

    Where one stage reads it, and the rows that its filters drop can travel on marked, stage 1 itself tells how far
    each substream has come. Otherwise the batch is held in memory and looked at once more.

    Args:
        batch: The batch as Spark gives it to ``foreachBatch``.
        plan: The query's plan.
    """

    def __init__(self, batch: DataFrame, plan: Plan) -> None:
        self._plan = plan
        self._batch = batch
        if plan.held:
            # The source would be read, and a user's Python function run, once for every branch and result.
            self._batch = plan.stages[plan.roots[0]].steps.apply(batch, upto=plan.shared).persist()

    def rows(self, stage: Stage) -> DataFrame:
        """The rows as a stage aggregates them."""
        if self._plan.held:
            return stage.steps.apply(self._batch, after=self._plan.shared).withColumn(KEPT, F.lit(True))
        return stage.steps.marked(self._batch)

    def highest(self, outcomes: Iterable[Aggregation]) -> dict[str, int]:
        """Highest event time of each substream that had one, whatever the user's filters drop."""
        if self._plan.held:
            found = self._batch.where(F.col(TIME).isNotNull()).groupBy(SUBSTREAM).agg(F.max(TIME)).collect()
            return {row[0]: row[1] for row in found}
        return {name: time for outcome in outcomes for name, time in outcome.highest.items()}

    def release(self) -> None:
        """Let the rows go."""
        if self._plan.held:
            self._batch.unpersist()


def aggregate(
    rows: DataFrame, stage: Stage, operator: WindowOperator, seen: Seen = Seen.NOTHING, *, keep_rows: bool = False
) -> Aggregation:
    """Run stage 1 of one window as one Spark job over its rows.

    Late is what the operator's state at the start of the epoch says, so that a re-run judges each row the same way.

    Args:
        rows: What has gone through the stage's transformations, with ``KEPT``.
        stage: The stage.
        operator: Its operator.
        seen: What to tell of event time.
        keep_rows: Whether the dropped rows are wanted.
    """
    judged = stage.judged(rows, operator)
    if keep_rows:
        judged = judged.persist()
    try:
        outcome = Aggregation(operator.partitioned(stage.partials(judged, operator, seen)))
        _count(outcome, stage, seen)
    except BaseException:
        judged.unpersist()
        raise
    outcome.rows = judged if keep_rows else None
    return outcome


def _count(outcome: Aggregation, stage: Stage, seen: Seen) -> None:
    # From the aggregated table: an accumulator or an observation counts the rows of a retried task twice.
    labels, sums = stage.totals
    totals = sums.agg(outcome.table, labels)
    for verdict, *named, rows, low, high, events, highest in totals.collect():
        substream = named[0] if named else ONLY_SUBSTREAM
        if verdict == Verdict.ACCEPTED:
            outcome.statistics = SegmentStatistics(rows, low, high)
            outcome.accepted = events
        elif verdict != Verdict.SEEN:
            (outcome.late if verdict == Verdict.LATE else outcome.null_timestamps)[substream] += events
        if highest is not None and (seen is Seen.ALL or (seen is Seen.EACH and verdict == Verdict.SEEN)):
            outcome.highest[substream] = max(highest, outcome.highest.get(substream, highest))
