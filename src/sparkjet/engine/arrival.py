"""Arrivals: the rows of an epoch in the form in which one side of a stage takes them, with counts of dropped rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.catalyst.moments import AS_IT_IS, Moment
from sparkjet.catalyst.tables import Rows
from sparkjet.engine.hash_table import make_room
from sparkjet.plan.dropped_rows import RowKind, dropped_rows, earliest, judged, lateness_of
from sparkjet.plan.partial_rows import ProgressDetail, accepted
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import release
from sparkjet.windows import SlidingWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.catalyst.columns import CompiledColumns
    from sparkjet.engine.stage_state import StageState
    from sparkjet.plan.plan import PlannedFeed, PlannedStage
    from sparkjet.plan.stage import Intake


@dataclass
class Arrival:
    """The rows that an epoch brings to one side of a stage.

    Attributes:
        segment: The accepted rows in the form of the state, partitioned like it; None if every row was dropped.
        accepted: Number of accepted rows.
        late: Late rows by substream.
        lateness: The same by substream and by how much further back the watermark would have to be.
        counts: Whether other lags can be judged by these rows: they are new, and come from a source.
        null_timestamps: Rows without an event time by substream.
        highest: Highest event time by substream, null for the only one; as far as the plan's ``detail`` requires it.
        rows: The judged rows, persisted until :meth:`release`; None unless late rows are delivered.
        judged_by: The watermark by which they were judged, None before the first one.
        shed_from: The time from which rows are late only as windows were closed early; None if none are.
    """

    segment: Segment | None = None
    accepted: int = 0
    late: Counter[str] = field(default_factory=Counter)
    lateness: Counter[tuple[str, int]] = field(default_factory=Counter)
    counts: bool = False
    null_timestamps: Counter[str] = field(default_factory=Counter)
    highest: dict[str, int] = field(default_factory=dict)
    rows: DataFrame | None = None
    judged_by: int | None = None
    shed_from: int | None = None

    @property
    def dropped(self) -> bool:
        """Whether any row was dropped."""
        return bool(self.late or self.null_timestamps)

    def reach(self, highest: Iterable[tuple[str, int | None]]) -> None:
        """Note event times by substream, None if there was no row."""
        for substream, time in highest:
            if time is not None:
                self.highest[substream] = max(time, self.highest.get(substream, time))

    def late_rows(self, chosen: Callable[[DataFrame], DataFrame | None] = lambda rows: rows) -> DataFrame | None:
        """The dropped rows as they arrived, those that are ``chosen`` by their times; None if there are none."""
        rows = None if self.rows is None or not self.dropped else chosen(self.rows)
        return None if rows is None else dropped_rows(rows, self.judged_by, self.shed_from)

    def release(self) -> None:
        """Unpersist the rows; a second call does nothing."""
        if self.rows is not None:
            self.rows.unpersist()
            self.rows = None


def arrive(
    batch: DataFrame,
    read: Callable[[DataFrame], DataFrame],
    stage: PlannedStage,
    number: int,
    state: StageState,
    detail: ProgressDetail = ProgressDetail.NOTHING,
    *,
    moment: Moment = AS_IT_IS,
    keep_rows: bool = False,
) -> Arrival:
    """Convert rows to the form of a state, by one Spark job over them: partially aggregated, if possible.

    Lateness is judged by the side's state at the start of the epoch, so that a re-run judges each row the same way.
    """
    make_room(batch.sparkSession, state.arrived)
    feed, intake = stage.feeds[number], stage.stage.intakes[number]
    side, kept, tasks = state.operator.sides[number], state.kept, state.arrival_tasks(batch.sparkSession)

    reached = state.reached if feed.parent is None else None
    step = state.operator.window.step if isinstance(state.operator, SlidingWindows) else 1
    judged_by, beyond = side.judged_by, None
    if judged_by is not None:
        # With a user's throttle, and with closeWindowsAtEnd, rows are judged by other times than the watermark's.
        beyond = min(max(0, (judged_by if reached is None else reached) - judged_by), step - 1) + 1

    def judge(table: DataFrame, judged_by: int | None, beyond: int | None) -> DataFrame:
        return judged(read(table), judged_by, beyond, step, timed=intake.timed)

    def counted(table: DataFrame) -> Arrival:
        arrival = _counted(table, feed, intake, detail, kept, tasks)
        arrival.counts = reached is not None
        return arrival

    if keep_rows:
        judged_rows = moment.of(judge(batch, judged_by, beyond), stage.name, number, "judged").persist()
        try:
            shuffled = moment.of(side.shuffled(intake.of(judged_rows, side, detail)), stage.name, number)
            table = shuffled.localCheckpoint(eager=False)
            arrival = counted(table)
        except BaseException:
            judged_rows.unpersist()
            raise
        arrival.rows = judged_rows
        return arrival
    table = kept(
        "arrival",
        feed,
        detail,
        inputs=[[Rows(batch)]],
        constants=(judged_by, beyond),
        used=lambda judged_by, beyond: (judged_by, beyond, None if judged_by is None else earliest(judged_by)),
        build=lambda table, *by: side.shuffled(intake.of(judge(table, *by), side, detail)),
        held=True,
        unkept=lambda built: moment.of(built, stage.name, number),
    )
    return counted(table)


def _counted(
    table: DataFrame, feed: PlannedFeed, intake: Intake, detail: ProgressDetail, kept: KeptPlans, tasks: int | None
) -> Arrival:
    """The arrival of rows from :meth:`Intake.of`; after this, the rows that only count others are not accessible."""
    arrival = Arrival()
    statistics: SegmentStatistics | None = None
    # From the aggregated table: an accumulator or an observation would count the rows of a retried task twice.
    labels, sums = intake.totals
    build = partial(_totals, labels, sums)
    totals = kept("totals", feed, inputs=[[Rows(table)]], build=build, tasks=tasks, by_partition=True)
    times = len(intake.substreams) or 1
    for row in totals.collect():
        highest = row[-times:]
        kind, *named, rows, low, high, events = row[:-times]
        substream = named[0] if named else feed.only_substream
        if kind == RowKind.ACCEPTED:
            found = SegmentStatistics(rows, low, high)
            statistics = found if statistics is None else statistics.together(found)
            arrival.accepted += events
        elif kind == RowKind.NULL_TIMESTAMP:
            arrival.null_timestamps[substream] += events
        elif kind != RowKind.PROGRESS_ONLY:
            arrival.late[substream] += events
            arrival.lateness[substream, lateness_of(kind)] += events
        if intake.substreams and detail is not ProgressDetail.NOTHING:
            arrival.reach(zip(intake.substreams, highest, strict=True))
        elif detail is ProgressDetail.ALL or (detail is ProgressDetail.EACH and kind == RowKind.PROGRESS_ONLY):
            arrival.reach([(substream, *highest)])
    if statistics is None:
        release(table)
    else:
        arrival.segment = Segment(table, statistics, None, accepted)
    return arrival


def _totals(labels: CompiledColumns, sums: CompiledColumns, table: DataFrame) -> DataFrame:
    return sums.agg(table, labels)
