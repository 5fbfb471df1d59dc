"""Stage 1 of an epoch: a batch of events becomes partial rows, drop counts and highest event times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.columns import SUBSTREAM, TIME
from sparkjet.engine.pipeline import DROPPED, LATE
from sparkjet.windows import SegmentStatistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.pipeline import Pipeline
    from sparkjet.windows import SlidingWindows


@dataclass
class Aggregation:
    """Outcome of stage 1.

    Attributes:
        table: Partial rows and counts of dropped rows in one local checkpoint.
        statistics: Of the partial rows; None if every row was dropped.
        accepted: Number of accepted rows.
        highest: Highest event time of each substream that had one.
        late: Late rows by substream.
        null_timestamps: Rows without an event time by substream.
        rows: The batch's rows with their verdict, held until :meth:`release`; None unless late rows are delivered.
    """

    table: DataFrame
    statistics: SegmentStatistics | None = None
    accepted: int = 0
    highest: dict[str, int] = field(default_factory=dict)
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

    def late_rows(self, watermark: int | None) -> DataFrame:
        """The dropped rows as they came, with substream, the watermark that judged them, and the reason."""
        assert self.rows is not None  # noqa: S101 - only called where late rows are delivered
        judged_by = F.lit(None).cast("timestamp") if watermark is None else F.timestamp_micros(F.lit(watermark))
        return (
            self.rows.where(F.col(DROPPED).isNotNull())
            .withColumns(
                {
                    "_substream": F.col(SUBSTREAM),
                    "_watermark": judged_by,
                    "_reason": F.substring_index(DROPPED, ":", 1),
                }
            )
            .drop(DROPPED, TIME, SUBSTREAM)
        )

    def release(self) -> None:
        """Let the batch's rows go."""
        if self.rows is not None:
            self.rows.unpersist()


def aggregate(
    batch: DataFrame, pipeline: Pipeline, operator: SlidingWindows, known: list[str], *, keep_rows: bool
) -> Aggregation:
    """Run stage 1 on a batch, as one Spark job over the source (two where a substream is new).

    The driver calls it with the names of the substreams it knows. Late is what the operator's state at the start of
    the epoch says, so that a re-run judges each row the same way.
    """
    observed, observation = pipeline.observe(batch, known)
    rows = pipeline.rows(observed, operator)
    if keep_rows:
        rows = rows.persist()
    try:
        outcome = Aggregation(operator.partitioned(pipeline.partials(rows, operator)))
        highest = observation.get
        _count(outcome)
        times = {name: highest.get(f"max{i}") for i, name in enumerate(known)}
        new = sorted(highest.get("new") or [])
        if new:
            times |= _highest_of(batch, new)
    except BaseException:
        rows.unpersist()
        raise
    outcome.highest = {name: timestamp for name, timestamp in times.items() if timestamp is not None}
    outcome.rows = rows if keep_rows else None
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


def _highest_of(batch: DataFrame, substreams: list[str]) -> dict[str, int]:
    """Highest event time of substreams nobody knew: a second look at the batch, in the epochs in which one appears."""
    chosen = batch.where(F.col(SUBSTREAM).isin(*substreams)).groupBy(SUBSTREAM).agg(F.max(TIME))
    return {row[0]: row[1] for row in chosen.collect()}
