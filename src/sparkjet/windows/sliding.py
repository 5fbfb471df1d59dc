"""Sliding and tumbling windows over frames: the operator and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.snapshots.record import NO_WINDOWS, SavedWindows, SlidingSettings
from sparkjet.state import OneSided
from sparkjet.state.segments import FEWEST, LARGE, Segment, SegmentStatistics, free, mergeable
from sparkjet.state.tasks import tasks_of_few
from sparkjet.time import MIN, WindowGrid
from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.deduct import DeductStrategy
from sparkjet.windows.recombine import RecombineStrategy
from sparkjet.windows.spans import ClosingRange
from sparkjet.windows.stacks import StacksStrategy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COMBINED = 3
"""In how many segments a frame is on average, for large ones to be merged."""
_PATIENT = 2 * FEWEST
"""How many segments are merged at least in an epoch that closes windows."""
_SEPARATE = 64
"""How many large segments are merged at last, so that they do not fill records; windows read few of them."""


class SlidingWindows(OneSided):
    """Combines frames into windows; Jet's sliding window operator with DataFrames as state.

    A :class:`sparkjet.windows.operator.WindowOperator`. A partial row is ``(keys…, frame, row_count, fields…)``, the
    frame identified by its exclusive end.

    The weakest aggregate decides the strategy: deduct if all support it (counts, exact sums), two stacks if all
    accumulators are bounded, otherwise recombine, as for tumbling windows, which have one frame.

    Args:
        window: Length, step and offset in microseconds.
        keys: Names of the key columns, at least one.
        accumulators: The aggregates' fields.
        partitions: Number of partitions of the state, hash-partitioned by the keys.
    """

    def __init__(self, window: WindowGrid, keys: Sequence[str], accumulators: Accumulators, partitions: int) -> None:
        self.window = window
        self.keys = tuple(keys)
        self.accumulators = accumulators
        self.partitions = partitions
        self.segments: list[Segment] = []
        self.closed: int | None = None
        self.whole_from: int | None = None
        """Windows that start before it are withheld, as some of their frames are gone; None if none is."""
        self.withheld = 0
        """How many windows were, since the query's first start."""
        self.shed_windows = 0
        """How many windows were closed early, since the query's first start."""
        self._garbage: list[Segment] = []
        # For Columns of this window; the accumulators' own may also be used by another window.
        self._once = Once()
        self._kept = KeptPlans()
        self._early = RecombineStrategy(window, keys, accumulators)
        if window.size > window.step and accumulators.deductible:
            self._strategy: DeductStrategy | StacksStrategy | RecombineStrategy = DeductStrategy(
                window, keys, accumulators
            )
        elif window.size > window.step and accumulators.bounded:
            self._strategy = StacksStrategy(window, keys, accumulators)
        else:
            self._strategy = self._early
        # Deduct subtracts the frames that leave, and stacks read whole blocks.
        self._kept_for = window.size - window.step if self._strategy is self._early else window.size

    @property
    def path(self) -> str:
        """The strategy by which windows are computed: ``deduct``, ``stacks`` or ``recombine``."""
        return self._strategy.name

    @property
    def settings(self) -> SlidingSettings:
        """Length, step and offset."""
        return SlidingSettings(self.window.size, self.window.step, self.window.offset)

    def frame_of(self, time: Column) -> Column:
        """The frame (its exclusive end) that a time in microseconds belongs to."""
        return time - F.pmod(time - self.window.offset, F.lit(self.window.frame)) + self.window.frame

    @property
    def leaves(self) -> str:
        """See :attr:`sparkjet.windows.WindowOperator.leaves`."""
        return f"frame + {self._kept_for}L"

    def regular(self, watermark: int) -> int:
        """See :meth:`sparkjet.windows.WindowOperator.regular`."""
        return self.window.closed_end(watermark)

    def bounds(self, time: Column) -> dict[str, Column]:  # noqa: ARG002 - the operator's protocol
        """Empty: the frame is enough."""
        return {}

    @property
    def judged_by(self) -> int | None:
        """The end of the last windows that were emitted: the first window of any earlier frame is one of them."""
        return self.closed

    def append(self, segment: Segment) -> None:
        """Add the partial rows of an epoch."""
        self.segments.append(segment)

    def compact(self) -> None:
        """See :meth:`sparkjet.state.Operator.compact`."""
        if self.segments:
            self._merge(len(self.segments))

    def _merge_newest(self, least: int) -> None:
        """Merge the newest segments if so many are to be merged."""
        count = self._mergeable()
        if count >= least:
            self._merge(count)

    def _merge(self, count: int) -> None:
        merged = self._kept(
            "merged",
            inputs=[[segment.rows for segment in self.segments[-count:]]],
            constants=[None if self.closed is None else self.closed - self._kept_for],
            build=self._merged,
            held=True,
        )
        rows = sum(each.statistics.rows for each in self.segments[-count:])
        tasks = tasks_of_few(merged.sparkSession, self.partitions, rows)
        statistics = SegmentStatistics.measure(merged, self._kept, tasks)
        self._garbage += self.segments[-count:]
        self.segments = self.segments[:-count]
        if statistics is not None:
            self.segments.append(Segment(merged, statistics))

    def _mergeable(self) -> int:
        """How many of the newest segments to merge: where each has other frames, a merge would only copy them."""
        count = mergeable(self.segments)
        statistics = [segment.statistics for segment in self.segments[-count:]] if count else []
        if sum(each.rows for each in statistics) <= LARGE:
            return count
        low, high = min(each.low for each in statistics), max(each.high for each in statistics)
        together = (high - low) // self.window.frame + 1
        each_alone = sum((each.high - each.low) // self.window.frame + 1 for each in statistics)
        return count if each_alone >= _COMBINED * together or count >= _SEPARATE else 0

    def _merged(self, frames: DataFrame, expired: int | None) -> DataFrame:
        live = frames if expired is None else frames.where(f"frame > {constant(expired, 'frame')}")
        return self.accumulators.group(live, *self.keys, "frame")

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows of the windows that end up to ``watermark``, None without any."""
        upto = MIN if watermark == MIN else self.window.closed_end(watermark)
        if watermark == MIN or (self.closed is not None and upto <= self.closed):
            self._merge_newest(FEWEST)
            return None
        # Somebody waits for these windows: what can be merged can mostly wait for an epoch that closes none.
        self._merge_newest(_PATIENT)
        after, before = self._whole_after(), self.closed
        self.closed = upto
        if not self.segments:
            self._strategy.reset()
            return None
        self.withheld += self._partial_windows(before, upto)
        windows = None
        if after is None or after < upto:
            closing = ClosingRange(after, upto, self.window)
            windows = self._strategy.close(self.segments, closing, self._finished)
        self._release_expired(upto)
        return windows

    def shed(self, until: int) -> DataFrame | None:
        """See :meth:`sparkjet.windows.WindowOperator.shed`."""
        # Up: what is to leave does so when the next window has closed.
        end = self.window.ends.higher_frame(until - 1)
        self.shed_windows += self._with_rows(self.closed, end)
        return self.close(end)

    def early(self) -> DataFrame | None:
        """Early rows of the open windows, None without any; changes no state."""
        last, after = self.open_until, self._whole_after()
        if last is None or (after is not None and last <= after):
            return None
        # Not by the operator's own strategy, whose running values must not advance beyond the watermark.
        return self._early.close(self.segments, ClosingRange(after, last, self.window), self._finished)

    def skip_to(self, watermark: int) -> None:
        """Advance to ``watermark`` without closing anything; no window may be open up to there."""
        upto = self.window.closed_end(watermark)
        self.closed = upto if self.closed is None else max(self.closed, upto)

    def _whole_after(self) -> int | None:
        """The last window end that is closed or withheld, None if there is none."""
        if self.whole_from is None:
            return self.closed
        partial = self.window.last_partial(self.whole_from)
        return partial if self.closed is None else max(self.closed, partial)

    def _partial_windows(self, before: int | None, upto: int) -> int:
        """How many of the windows that end above ``before`` up to ``upto`` are withheld, and may have rows."""
        if self.whole_from is None:
            return 0
        return self._with_rows(before, min(upto, self.window.last_partial(self.whole_from)))

    def _with_rows(self, before: int | None, upto: int) -> int:
        """How many windows that end above ``before`` up to ``upto`` may have rows."""
        last = self.open_until
        if last is None:
            return 0
        first = self.window.ends.higher_frame(min(each.statistics.low for each in self.segments) - 1)
        if before is not None:
            first = max(first, before + self.window.step)
        return max(0, (min(last, upto) - first) // self.window.step + 1)

    def _finished(self, windows: DataFrame) -> DataFrame:
        return self._once("finished", build=self._final).select(windows)

    def _final(self) -> CompiledColumns:
        start = (F.col("end") - self.window.size).alias("start")
        return CompiledColumns([*self.keys, start, "end", *self.accumulators.finish()])

    def _release_expired(self, upto: int) -> None:
        """Release the segments that no later window needs."""
        last = self.open_until
        if last is not None and last <= upto:
            self._garbage += self.segments
            self.segments = []
            self._strategy.reset()
            return
        self._garbage += [s for s in self.segments if s.statistics.high <= upto - self._kept_for]
        self.segments = [s for s in self.segments if s.statistics.high > upto - self._kept_for]

    @property
    def open_until(self) -> int | None:
        """End of the last window with rows, None without state."""
        if not self.segments:
            return None
        return self.window.last_end(max(s.statistics.high for s in self.segments))

    def release(self) -> None:
        """Free obsolete state."""
        self._strategy.release()
        free(self._garbage, self.segments)

    def restore(self, segments: Sequence[Segment], closed: int | None, windows: SavedWindows = NO_WINDOWS) -> None:
        """Replace the state by that of a snapshot of the same window."""
        self._garbage += self.segments
        self.segments = list(segments)
        self.closed = closed
        self.whole_from, self.withheld, self.shed_windows = windows
        self._strategy.reset()

    def realigned_end(self, closed: int | None) -> int | None:
        """The last closed end of a snapshot of another window, on this window's grid.

        Not the last end before that window's next one: windows of this grid may end between the two, which nobody has
        emitted. One that was, by a window of the same length, is withheld: it starts before what is still there.
        """
        return None if closed is None else self.window.closed_end(closed)

    def realigned(self, partials: DataFrame, before: WindowGrid, closed: int | None) -> DataFrame:
        """Partial rows of a snapshot of window ``before`` with their frames moved up to this window's grid.

        Frames that the old window no longer needed are omitted, whether or not they had been removed yet, so that
        the result does not depend on when the store was compacted.
        """
        if closed is not None:
            partials = partials.where(F.col("frame") > closed + before.step - before.size)
        moved = partials.withColumn("frame", self.frame_of(F.col("frame") - 1))
        end = self.realigned_end(closed)
        if end is not None:
            moved = moved.where(F.col("frame") > end + self.window.step - self.window.size)
        return self.accumulators.group(moved, *self.keys, "frame")

    def newest(self, rows: DataFrame, keys: Sequence[str], closed: int | None) -> DataFrame:  # noqa: ARG002
        """See :meth:`sparkjet.state.UpgradableOperator.newest`: a snapshot has each row once."""
        return rows

    def renewed(self, rows: DataFrame) -> DataFrame:
        """See :meth:`sparkjet.state.UpgradableOperator.renewed`."""
        return self.accumulators.group(rows, *self.keys, "frame")

    def measured(self, rows: DataFrame) -> SegmentStatistics | None:
        """See :meth:`sparkjet.state.UpgradableOperator.measured`."""
        return SegmentStatistics.measure(rows, self._kept)

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Partial rows, hash-partitioned by the keys."""
        return rows.repartition(self.partitions, *self.accumulators.once.columns(*self.keys))
