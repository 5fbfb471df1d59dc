"""Input batches: one of Spark's micro-batches on its way to the stages and outputs that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.engine.arrival import arrive
from sparkjet.plan.diverting import passed
from sparkjet.plan.partial_rows import ProgressDetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.row_counter import RowCounter
    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.stage_state import StageState
    from sparkjet.plan.plan import Plan, PlannedFeed, PlannedStreamOutput
    from sparkjet.plan.transformations import Transformations


class InputBatch:
    """A batch on its way to stages and outputs, read once from its sources.

    If only one stage reads it, and the rows that its filters drop can be kept, marked, partial aggregation itself finds
    out how far each substream has come. Otherwise the batch is persisted in memory and read once more. If only one
    output reads it, nothing is done beyond what Spark itself would do.

    Args:
        batch: The batch that Spark passes to ``foreachBatch``.
        plan: The query's plan.
        moment: The seeds and the time of the epoch.
    """

    def __init__(self, batch: DataFrame, plan: Plan, moment: Moment = AS_IT_IS) -> None:
        self._plan = plan
        self._moment = moment
        self._batch = batch
        self._held = plan.persisted
        self._tried: dict[int, DataFrame] = {}
        self._letters: list[DataFrame] = []
        self._failed_before = 0 if plan.failures is None else plan.failures.count
        if plan.persisted:
            # The source would be read, and a user's Python function run, once for every branch and result.
            self._batch = moment.of(plan.begun(batch), "begun").persist()

    @property
    def rows(self) -> DataFrame:
        """The batch after the transformations that all readers share."""
        return self._batch

    def arrivals(
        self, stages: Mapping[str, StageState], detail: ProgressDetail = ProgressDetail.NOTHING
    ) -> Iterator[tuple[str, int, Arrival]]:
        """The rows for each stage that reads a source, by the stage's name and the number of the side."""
        for stage in self._plan.stages:
            if all(feed.parent is not None for feed in stage.feeds):
                continue
            late = self._plan.delivers_late_rows(stage.name)
            for number, feed in enumerate(stage.feeds):
                if feed.parent is None:
                    batch, read, state = self._batch, partial(self._rows, feed), stages[stage.name]
                    chain = feed.feed.transformations
                    if self._is_tried_once(chain):
                        batch, read = self._tried_once(feed.source, chain), partial(self._passed, feed)
                    found = arrive(batch, read, stage, number, state, detail, moment=self._moment, keep_rows=late)
                    yield stage.name, number, found

    def output(self, output: PlannedStreamOutput) -> DataFrame:
        """The rows of an output that reads a source itself."""
        if self._is_tried_once(output.chain):
            rows = passed(self._tried_once(output.reads, output.chain))
        elif self._plan.failures is not None:
            tried = self._plan.tried(self._batch, output.reads, output.chain)
            rows = passed(tried, self._plan.failures)
        else:
            rows = self._plan.rows(self._batch, output.reads, output.chain)
        return rows.drop(*HIDDEN) if self._plan.stages else rows

    def tried(self, chain: Transformations, source: int) -> DataFrame:
        """The rows at the end of a chain that diverts, including failed ones."""
        if self._is_tried_once(chain):
            return self._tried_once(source, chain)
        return self._plan.tried(self._batch, source, chain)

    def tried_again(self, output: PlannedStreamOutput) -> DataFrame:
        """The same for an output whose sink has not accepted its rows; it may not have read all of them."""
        tried, failures = self.tried(output.chain, output.reads), self._plan.failures
        return tried if failures is None else failures.passed(tried, KEPT)

    @property
    def may_have_failed(self) -> bool:
        """Whether rows may have failed; if not, the jobs that have read the batch have met no failed row."""
        return self._plan.failures is None or self._plan.failures.count > self._failed_before

    def held(self, letters: DataFrame) -> DataFrame:
        """Failed rows, held in memory if the batch is not: they are needed several times."""
        if self._plan.failures is None:
            return letters
        self._letters.append(letters.persist())
        return self._letters[-1]

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
        failures = self._plan.failures
        if failures is not None and not feed.feed.inputs:
            return self._passed(feed, self._plan.tried(batch, feed.source, chain), failures)
        if self._plan.persisted or not feed.feed.inputs:
            rows = feed.feed.timed(self._plan.rows(batch, feed.source, chain))
            return rows.withColumn(KEPT, F.lit(True))
        return chain.marked(batch, failures)

    def _passed(self, feed: PlannedFeed, tried: DataFrame, failures: RowCounter | None = None) -> DataFrame:
        """The same for rows that have been tried."""
        return feed.feed.timed(passed(tried, failures)).withColumn(KEPT, F.lit(True))

    def _is_tried_once(self, chain: Transformations) -> bool:
        return bool(self._plan.of_failures or self._plan.expected) and chain.is_tried_once(self._plan.shared)

    def _tried_once(self, source: int, chain: Transformations) -> DataFrame:
        """The rows at the end of a chain, held: if tried again, a row could be both a result and a dead letter."""
        if id(chain) not in self._tried:
            tried = self._plan.tried(self._batch, source, chain)
            self._tried[id(chain)] = self._moment.of(tried, "tried", len(self._tried)).persist()
        return self._tried[id(chain)]

    def release(self) -> None:
        """Unpersist the rows; a second call does nothing."""
        while self._tried:
            self._tried.popitem()[1].unpersist()
        while self._letters:
            self._letters.pop().unpersist()
        if self._held:
            self._held = False
            self._batch.unpersist()
