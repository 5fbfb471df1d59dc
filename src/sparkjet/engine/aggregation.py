"""Stage 1 of an epoch: a batch of events becomes partial rows, drop counts and highest event times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.columns import SUBSTREAM, TIME
from sparkjet.engine.stage import LATE, dropped_rows
from sparkjet.windows import SegmentStatistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from sparkjet.engine.plan import Plan
    from sparkjet.engine.stage import Stage
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
        rows: The rows with their verdict, held until :meth:`release`; None unless late rows are delivered.
    """

    table: DataFrame
    statistics: SegmentStatistics | None = None
    accepted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    null_timestamps: Counter[str] = field(default_factory=Counter)
    rows: DataFrame | None = None

    @property
    def partials(self) -> DataFrame:
        """The partial rows of the accepted rows, partitioned as the state is."""
        return self.table.where("dropped IS NULL").drop("dropped")

    @property
    def dropped(self) -> bool:
        """Whether any row was dropped."""
        return bool(self.late or self.null_timestamps)

    def late_rows(self, watermark: int | None) -> DataFrame | None:
        """The dropped rows as they came, None if there are none."""
        return None if self.rows is None or not self.dropped else dropped_rows(self.rows, watermark)

    def release(self) -> None:
        """Let the rows go."""
        if self.rows is not None:
            self.rows.unpersist()


class ObservedBatch:
    """A batch on its way through the first stages; ``rows`` may be read as often as the plan says, at one scan.

    They have gone through the transformations that all these stages share.

    Args:
        batch: The batch as Spark gives it to ``foreachBatch``.
        plan: The query's plan.
        known: Full names of the substreams that the tracker knows.
    """

    def __init__(self, batch: DataFrame, plan: Plan, known: list[str]) -> None:
        self._batch = batch
        self._known = known
        self.rows: DataFrame
        self._observation: Observation
        self.rows, self._observation = plan.observe(batch, known)
        self._held = plan.passes > 1
        self.rows = plan.stages[plan.roots[0]].steps.apply(self.rows, upto=plan.shared)
        if self._held:
            # The source would be read, and a user's Python function run, once for every branch and result.
            self.rows = self.rows.persist()

    def highest(self) -> dict[str, int]:
        """Highest event time of each substream that had one, once a job has read the rows."""
        observed = self._observation.get
        times = {name: observed.get(f"max{i}") for i, name in enumerate(self._known)}
        new = sorted(observed.get("new") or [])
        if new:
            # A second look at the batch, in the epochs in which a substream appears that nobody knew.
            chosen = self._batch.where(F.col(SUBSTREAM).isin(*new)).groupBy(SUBSTREAM).agg(F.max(TIME))
            times |= {row[0]: row[1] for row in chosen.collect()}
        return {name: time for name, time in times.items() if time is not None}

    def release(self) -> None:
        """Let the rows go."""
        if self._held:
            self.rows.unpersist()


def aggregate(
    rows: DataFrame, stage: Stage, operator: WindowOperator, *, shared: int = 0, keep_rows: bool = False
) -> Aggregation:
    """Run stage 1 of one window as one Spark job over its rows.

    Late is what the operator's state at the start of the epoch says, so that a re-run judges each row the same way.

    Args:
        rows: What the stage reads.
        stage: The stage.
        operator: Its operator.
        shared: How many of the stage's transformations the rows have gone through already.
        keep_rows: Whether the dropped rows are wanted.
    """
    judged = stage.judged(rows, operator, shared)
    if keep_rows:
        judged = judged.persist()
    try:
        outcome = Aggregation(operator.partitioned(stage.partials(judged, operator)))
        _count(outcome)
    except BaseException:
        judged.unpersist()
        raise
    outcome.rows = judged if keep_rows else None
    return outcome


def _count(outcome: Aggregation) -> None:
    # From the aggregated table: an accumulator or an observation counts the rows of a retried task twice.
    totals = outcome.table.groupBy("dropped").agg(F.count(F.lit(1)), F.min("frame"), F.max("frame"), F.sum("row_count"))
    for dropped, rows, low, high, events in totals.collect():
        if dropped is None:
            outcome.statistics = SegmentStatistics(rows, low, high)
            outcome.accepted = events
        else:
            reason, _, substream = dropped.partition(":")
            (outcome.late if reason == LATE else outcome.null_timestamps)[substream] += events
