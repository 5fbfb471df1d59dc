"""Input batches: a micro-batch of Spark's on its way to the stages and outputs that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.engine.arrival import arrive
from sparkjet.plan.partial_rows import ProgressDetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.stage_state import StageState
    from sparkjet.plan.plan import Plan, PlannedFeed, PlannedStreamOutput
    from sparkjet.plan.transformations import Transformations


class InputBatch:
    """A batch on its way to stages and outputs, read from its sources once.

    Where only one stage reads it, and the rows that its filters drop can travel on marked, partial aggregation
    itself finds how far each substream has come. Otherwise the batch is persisted in memory and read once more. Where
    only one output reads it, nothing is done but what Spark itself would do.

    Args:
        batch: The batch as Spark gives it to ``foreachBatch``.
        plan: The query's plan.
        moment: The seeds and the time of the epoch.
    """

    def __init__(self, batch: DataFrame, plan: Plan, moment: Moment = AS_IT_IS) -> None:
        self._plan = plan
        self._moment = moment
        self._batch = batch
        self._held = plan.persisted
        if plan.persisted:
            # The source would be read, and a user's Python function run, once for every branch and result.
            self._batch = moment.of(plan.begun(batch), "begun").persist()

    @property
    def rows(self) -> DataFrame:
        """The batch after what all readers share."""
        return self._batch

    def arrivals(
        self, stages: Mapping[str, StageState], detail: ProgressDetail = ProgressDetail.NOTHING
    ) -> Iterator[tuple[str, int, Arrival]]:
        """What the batch brings to each stage that reads a source, by the stage's name and the number of the side.

        Args:
            stages: The state of each stage by its name.
            detail: What to find out about event time.
        """
        for stage in self._plan.stages:
            if all(feed.parent is not None for feed in stage.feeds):
                continue
            late = self._plan.delivers_late_rows(stage.name)
            for number, feed in enumerate(stage.feeds):
                if feed.parent is None:
                    read, state = partial(self._rows, feed), stages[stage.name]
                    found = arrive(self._batch, read, stage, number, state, detail, moment=self._moment, keep_rows=late)
                    yield stage.name, number, found

    def output(self, output: PlannedStreamOutput) -> DataFrame:
        """The rows of an output of a source itself."""
        rows = self._plan.rows(self._batch, output.reads, output.chain)
        return rows.drop(*HIDDEN) if self._plan.stages else rows

    def tried(self, chain: Transformations, source: int) -> DataFrame:
        """The rows at the end of a chain that diverts, failed ones among them."""
        return chain.tried(self._plan.sources.rows(self._batch, source), after=self._plan.shared)

    def highest(self, arrivals: Iterable[Arrival]) -> dict[str, int]:
        """Highest event time of each substream that had one, whatever the user's filters drop."""
        if not self._plan.inputs:
            return {}
        if self._plan.persisted:
            found = self._batch.where(F.col(TIME).isNotNull()).groupBy(SUBSTREAM).agg(F.max(TIME)).collect()
            return {row[0]: row[1] for row in found}
        return {name: time for arrival in arrivals for name, time in arrival.highest.items()}

    def _rows(self, feed: PlannedFeed, batch: DataFrame) -> DataFrame:
        """The rows as a stage reads them."""
        chain = feed.feed.transformations
        if self._plan.persisted or not feed.feed.inputs:
            rows = feed.feed.timed(self._plan.rows(batch, feed.source, chain))
            return rows.withColumn(KEPT, F.lit(True))
        return chain.marked(batch)

    def release(self) -> None:
        """Unpersist the rows; a second call does nothing."""
        if self._held:
            self._held = False
            self._batch.unpersist()
