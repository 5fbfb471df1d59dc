"""The results of an epoch: stage by stage, from the rows that have arrived to the rows for each output."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.catalyst.tables import Rows
from sparkjet.engine.arrival import arrive
from sparkjet.engine.sharing import Share
from sparkjet.engine.state_limit import StateLimit
from sparkjet.plan.diverting import passed
from sparkjet.plan.plan import reader
from sparkjet.plan.window_join import WindowJoin
from sparkjet.state import TimedOperator
from sparkjet.state.tasks import tasks_of_few
from sparkjet.time import MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.changes import Changes
    from sparkjet.engine.expectations import Expectations
    from sparkjet.engine.state import QueryState
    from sparkjet.plan.plan import Plan, PlannedFeed, PlannedOutput, PlannedStage


class Results:
    """The rows of one epoch; created at its beginning, released at its end in any case.

    The driver calls :meth:`accept` for each feed that reads the input, then one of :meth:`close` and
    :meth:`close_all`, then takes the rows.
    """

    def __init__(
        self,
        plan: Plan,
        state: QueryState,
        expectations: Expectations,
        moment: Moment = AS_IT_IS,
        limit: StateLimit | None = None,
    ) -> None:
        self._plan = plan
        self._expectations = expectations
        self._moment = moment
        self._state = state
        self._limit = StateLimit() if limit is None else limit
        self._rows: dict[str, DataFrame | None] = {}
        self._shed: dict[str, DataFrame | None] = {}
        self._read: dict[str, int] = {}
        self._tried: dict[str, list[DataFrame]] = {}
        self._persisted: list[DataFrame] = []
        self._before = MIN
        self._share = Share()
        self.accepted: dict[str, list[Arrival]] = {}
        """The arrivals given to :meth:`accept`, by name of the stage."""

    @property
    def arrivals(self) -> list[Arrival]:
        """All arrivals given to :meth:`accept`."""
        return [arrival for arrivals in self.accepted.values() for arrival in arrivals]

    def begin(self, now: int, before: int, share: Share) -> None:
        """Tell the stages that ask for it an epoch's processing time, and the watermark by which its rows are judged.

        Outputs get the rows of their ``share``; stages that read other stages get all rows.
        """
        self._before, self._share = before, share
        for stage in self._plan.stages:
            state = self._state.stages.get(stage.name)
            if state is not None and isinstance(state.operator, TimedOperator):
                state.operator.begin(now, before - stage.stage.lag if before > MIN else MIN)

    def accept(self, name: str, side: int, arrival: Arrival) -> None:
        """Pass what has arrived at a stage to a side of its operator."""
        stage = next(each for each in self._plan.stages if each.name == name)
        judged_by = self._watermark(stage, stage.feeds[side], self._before)
        arrival.judged_by = None if judged_by == MIN else judged_by
        arrival.shed_from = self._state.stages[name].shed_before(judged_by)
        self.accepted.setdefault(name, []).append(arrival)
        self._state.stages[name].append(side, arrival)

    def close(self, watermark: int) -> None:
        """Close what the watermark has passed; each stage's results go into the stages that read them."""
        for stage in self._plan.stages:
            if isinstance(stage.stage, WindowJoin):
                self._join(stage, stage.stage)
                continue
            self._feed(stage)
            self._close(stage, [self._watermark(stage, feed, watermark) for feed in stage.feeds])

    def close_all(self) -> None:
        """Close whatever is open, and raise the watermark so far that none of it can be opened again."""
        highest = self._state.tracker.watermark
        for stage in self._plan.stages:
            if isinstance(stage.stage, WindowJoin):
                self._join(stage, stage.stage)
                continue
            self._feed(stage)
            until = self._state.stages[stage.name].operator.open_until
            if until is not None:
                highest = max(highest, until + stage.stage.lag)
            self._close(stage, [MIN if until is None else until] * len(stage.feeds))
        self._state.tracker.force(highest)
        for stage in self._plan.stages:
            if stage.name in self._state.stages:
                self._state.stages[stage.name].operator.skip_to(highest - stage.stage.lag)

    def rows(self, output: PlannedOutput) -> DataFrame | None:
        """The rows for an output, without early ones; None if there are none."""
        if output.complete:
            return self._all_rows(output)
        return self._and_shed(output, self._final_rows(output), self._share.results(self._shed.get(output.reads)))

    def _and_shed(self, output: PlannedOutput, rows: DataFrame | None, shed: DataFrame | None) -> DataFrame | None:
        """Rows for an output, and those of the windows that were closed early."""
        if shed is None:
            return rows
        added = self._finished(output, shed, shed=True)
        return added if rows is None else rows.unionByName(added)

    def _final_rows(self, output: PlannedOutput) -> DataFrame | None:
        """The rows for an output that the watermark has made final."""
        found = self._rows[output.reads]
        final = self._share.results(found)
        state = self._state.stages.get(output.reads)
        diverts = output.chain is not None and output.chain.divert is not None
        # Shared rows are not a table for which plans are kept.
        if final is not None and (
            state is None or diverts or final is not found or self._expectations.counts(output.name)
        ):
            return self._finished(output, final)
        if final is None or state is None:
            return None
        tasks = tasks_of_few(final.sparkSession, state.partitions, self._read[output.reads])
        return state.kept("finished", output.name, inputs=[[Rows(final)]], build=output.finished, tasks=tasks)

    def changed_rows(self, output: PlannedOutput, changes: Changes, *, early: bool) -> DataFrame | None:
        """The rows for an output in update mode that have changed since they were last sent; None if there are none."""
        changes.arrived(self.accepted.get(output.reads, ()))
        final = self._rows[output.reads]
        if final is not None and not output.marks_early:
            final = changes.of(final)
        shed = self._shed.get(output.reads)
        # What was closed early is new to readers who are told of it, even if its rows are those that they have.
        if shed is not None and not output.marks_early and not output.marks_shed:
            shed = changes.of(shed)
        rows = self._and_shed(output, None if final is None else self._finished(output, final), shed)
        windows = self._state.stages[output.reads].operator.early() if early else None
        changed = None if windows is None else changes.of(output.stage.output(windows))
        if changed is not None:
            added = self._finished(output, changed, early=True)
            rows = added if rows is None else rows.unionByName(added)
        return rows

    def late_rows(self, output: PlannedOutput) -> DataFrame | None:
        """The rows that a stage dropped; None if there are none."""
        found = [arrival.late_rows(self._share.late) for arrival in self.accepted.get(output.reads, ())]
        rows = [each for each in found if each is not None]
        if not rows:
            return None
        # The two sides of a join have different columns.
        return self._finished(output, reduce(DataFrame.unionByName, [_filled(each, output.shape) for each in rows]))

    def release(self) -> None:
        """Release everything that was held in memory for this epoch; a second call does nothing."""
        for arrival in self.arrivals:
            arrival.release()
        while self._persisted:
            self._persisted.pop().unpersist()

    def _all_rows(self, output: PlannedOutput) -> DataFrame | None:
        """The rows for an output in complete mode, None if its stage has had no rows."""
        if not any(arrival.segment for arrival in self.accepted.get(output.reads, ())):
            return None
        found = self._state.stages[output.reads].operator.early()
        return None if found is None else self._finished(output, output.stage.output(found))

    def _finished(
        self, output: PlannedOutput, rows: DataFrame, *, early: bool = False, shed: bool = False
    ) -> DataFrame:
        """The rows in the form for the sink, counted by their expectations."""
        # In finished form: without internal columns.
        rows = self._held(output.name, rows.drop(*HIDDEN))
        if output.chain is None or output.chain.divert is None:
            self._count(output.name, rows)
            return output.finished(rows, early=early, shed=shed)
        tried = self._moment.of(output.tried(rows, early=early, shed=shed), output.name, "tried").persist()
        self._persisted.append(tried)
        self._tried.setdefault(output.name, []).append(tried)
        self._count(output.name, rows, tried)
        return passed(tried)

    def tried(self, output: str) -> DataFrame | None:
        """This epoch's rows for an output whose rows are diverted, including failed ones; None if there are none."""
        found = self._tried.get(output)
        return None if found is None else reduce(DataFrame.unionByName, found)

    def _counted(self, reader: str, rows: DataFrame) -> DataFrame:
        """Rows on their way to the next stage, counted by their expectations."""
        rows = self._held(reader, rows)
        self._count(reader, rows)
        return rows

    def _held(self, reader: str, rows: DataFrame) -> DataFrame:
        """Rows, held in memory if they are counted: the counted rows are those that are passed on."""
        if not self._expectations.counts(reader):
            return rows
        rows = self._moment.of(rows, reader, "expected").persist()
        self._persisted.append(rows)
        return rows

    def _count(self, reader: str, rows: DataFrame, tried: DataFrame | None = None) -> None:
        if self._expectations.counts(reader):
            self._expectations.of_results(reader, rows, tried)

    def _watermark(self, stage: PlannedStage, feed: PlannedFeed, watermark: int) -> int:
        """The watermark of a feed, from the query's."""
        if stage.stage.own_watermarks and feed.parent is None:
            return self._state.tracker.watermark_of(feed.prefixes)
        return watermark - feed.feed.lag if watermark > MIN else MIN

    def _feed(self, stage: PlannedStage) -> None:
        """Pass on what the stages above have just emitted."""
        for number, feed in enumerate(stage.feeds):
            rows = None if feed.parent is None else self._rows[feed.parent.name]
            if rows is not None:
                rows = self._counted(reader(stage.name, number), rows)
                late = self._plan.delivers_late_rows(stage.name)
                read, state = partial(_shaped, feed), self._state.stages[stage.name]
                found = arrive(rows, read, stage, number, state, moment=self._moment, keep_rows=late)
                self.accept(stage.name, number, found)

    def _close(self, stage: PlannedStage, watermarks: Sequence[int]) -> None:
        state = self._state.stages[stage.name]
        # Before: closed rows leave the state, and there are as many results.
        self._read[stage.name] = state.rows
        closed = state.operator.close(*watermarks)
        kept = state.kept
        output = stage.stage.output
        self._emit(stage, None if closed is None else kept("results", inputs=[[Rows(closed)]], build=output))
        shed = self._limit.keep(stage, state, self._state.tracker)
        self._shed[stage.name] = None if shed is None else self._for_all(stage, output(shed))

    def _join(self, stage: PlannedStage, join: WindowJoin) -> None:
        """Join what the stages above have just emitted."""
        found: list[DataFrame | None] = []
        for number, feed in enumerate(stage.feeds):
            rows = None if feed.parent is None else self._rows[feed.parent.name]
            found.append(None if rows is None else self._counted(reader(stage.name, number), rows))
        self._emit(stage, join.joined(found))

    def _emit(self, stage: PlannedStage, rows: DataFrame | None) -> None:
        self._rows[stage.name] = None if rows is None else self._for_all(stage, rows)

    def _for_all(self, stage: PlannedStage, rows: DataFrame) -> DataFrame:
        """Results of a stage for its consumers, each of which would compute them again."""
        if self._plan.consumers(stage.name) > 1:
            rows = self._moment.of(rows, stage.name, "results").persist()
            self._persisted.append(rows)
        return rows


def _shaped(feed: PlannedFeed, rows: DataFrame) -> DataFrame:
    """The results of one stage in the form in which another one reads them."""
    return feed.feed.timed(feed.feed.transformations.apply(rows)).withColumn(KEPT, F.lit(True))


def _filled(rows: DataFrame, shape: DataFrame) -> DataFrame:
    """The rows with nulls in the columns that they lack."""
    lacking = [field for field in shape.schema if field.name not in rows.columns]
    return rows.withColumns({each.name: F.lit(None).cast(each.dataType) for each in lacking}) if lacking else rows
