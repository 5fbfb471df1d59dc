"""Sliding and tumbling windows over frames: the operator with its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CompiledColumns, Once
from sparkjet.catalyst.constants import constant
from sparkjet.snapshots.record import SlidingSettings
from sparkjet.time import MIN, WindowGrid
from sparkjet.windows.accumulators import Accumulators
from sparkjet.windows.deduct import DeductStrategy
from sparkjet.windows.recombine import RecombineStrategy
from sparkjet.windows.segments import Segment, SegmentStatistics, mergeable
from sparkjet.windows.spans import ClosingRange
from sparkjet.windows.stacks import StacksStrategy

if TYPE_CHECKING:
    from pyspark.sql import Column


class SlidingWindows:
    """Frames in, windows out; Jet's sliding window operator with a state of DataFrames.

    A :class:`sparkjet.windows.operator.WindowOperator`. A partial row is ``(keys…, frame, row_count, fields…)``, the
    frame named by its exclusive end.

    The path is chosen by the weakest aggregate: deduct where all can (counts, exact sums), two stacks where all
    accumulators are bounded, recombining the frames otherwise and for tumbling windows, where a window is one frame.

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
        self._garbage: list[Segment] = []
        # Columns of this window; those of the accumulators may go on in another one.
        self._once = Once()
        if window.size > window.step and accumulators.deductible:
            self._path: DeductStrategy | StacksStrategy | RecombineStrategy = DeductStrategy(window, keys, accumulators)
        elif window.size > window.step and accumulators.bounded:
            self._path = StacksStrategy(window, keys, accumulators)
        else:
            self._path = RecombineStrategy(window, keys, accumulators)

    @property
    def path(self) -> str:
        """Which way windows are computed: ``deduct``, ``stacks`` or ``recombine``."""
        return self._path.name

    @property
    def settings(self) -> SlidingSettings:
        """Length, step and offset."""
        return SlidingSettings(self.window.size, self.window.step, self.window.offset)

    def frame_of(self, time: Column) -> Column:
        """The frame (its exclusive end) that a time in microseconds belongs to."""
        return time - F.pmod(time - self.window.offset, F.lit(self.window.step)) + self.window.step

    def bounds(self, time: Column) -> dict[str, Column]:  # noqa: ARG002 - the operator's protocol
        """None: a frame says it all."""
        return {}

    def is_late(self, time: str) -> Column:
        """Whether the first window of a time's frame has been emitted already."""
        if self.closed is None:
            return F.lit(False)
        frame = self._once("frame of", time, build=lambda: self.frame_of(F.col(time)))
        return frame <= F.expr(constant(self.closed, time))

    def append(self, segment: Segment) -> None:
        """Take the partial rows of an epoch, merging the newest segments when it is time."""
        self.segments.append(segment)
        count = mergeable(self.segments)
        if not count:
            return
        united = reduce(DataFrame.unionByName, [each.partials for each in self.segments[-count:]])
        live = united
        if self.closed is not None:
            live = united.where(f"frame > {constant(self.closed - self.window.size, 'frame')}")
        merged = self.accumulators.group(live, *self.keys, "frame").localCheckpoint(eager=False)
        statistics = SegmentStatistics.measure(merged)
        self._garbage += self.segments[-count:]
        self.segments = self.segments[:-count]
        if statistics is not None:
            self.segments.append(Segment(merged, statistics))

    def close(self, watermark: int) -> DataFrame | None:
        """Final rows of the windows that end up to ``watermark``, None without any."""
        if watermark == MIN:
            return None
        upto = self.window.grid.floor_frame(watermark)
        if self.closed is not None and upto <= self.closed:
            return None
        closing = ClosingRange(self.closed, upto, self.window.step)
        self.closed = upto
        if not self.segments:
            self._path.forget()
            return None
        windows = self._path.close(self._frames(), closing)
        self._drop_expired(upto)
        return self._finished(windows)

    def early(self) -> DataFrame | None:
        """What the open windows hold so far, None if nothing is open; the state stays as it is."""
        last = self.open_until
        if last is None or (self.closed is not None and last <= self.closed):
            return None
        # Not on the operator's own path, whose running values must not move ahead of the watermark.
        path = RecombineStrategy(self.window, self.keys, self.accumulators)
        return self._finished(path.close(self._frames(), ClosingRange(self.closed, last, self.window.step)))

    def skip_to(self, watermark: int) -> None:
        """Count everything up to ``watermark`` as closed; nothing may be open up to there."""
        upto = self.window.grid.floor_frame(watermark)
        self.closed = upto if self.closed is None else max(self.closed, upto)

    def _finished(self, windows: DataFrame) -> DataFrame:
        return self._once("finished", build=self._final).select(windows)

    def _final(self) -> CompiledColumns:
        start = (F.col("end") - self.window.size).alias("start")
        return CompiledColumns([*self.keys, start, "end", *self.accumulators.finish()])

    def _drop_expired(self, upto: int) -> None:
        """Let go of segments that no later window needs.

        One step longer than windows need them: the deduct path still has to take the frames out of its running value.
        """
        last = self.open_until
        if last is not None and last <= upto:
            self._garbage += self.segments
            self.segments = []
            self._path.forget()
            return
        self._garbage += [s for s in self.segments if s.statistics.high <= upto - self.window.size]
        self.segments = [s for s in self.segments if s.statistics.high > upto - self.window.size]

    @property
    def open_until(self) -> int | None:
        """End of the last window that holds anything, None without state."""
        if not self.segments:
            return None
        return max(s.statistics.high for s in self.segments) + self.window.size - self.window.step

    def release(self) -> None:
        """Free state that nothing reads any more."""
        self._path.release()
        for segment in self._garbage:
            segment.release()
        self._garbage.clear()

    def restore(self, segments: Sequence[Segment], closed: int | None) -> None:
        """Replace the state by that of a snapshot of the same window."""
        self._garbage += self.segments
        self.segments = list(segments)
        self.closed = closed
        self._path.forget()

    def realigned_end(self, before: WindowGrid, closed: int | None) -> int | None:
        """The last closed end of a snapshot of window ``before``, on this window's grid.

        The first window that may still be emitted is moved up, never down: no window is emitted twice.
        """
        if closed is None:
            return None
        return self.window.grid.higher_frame(before.grid.higher_frame(closed) - 1) - self.window.step

    def realigned(self, partials: DataFrame, before: WindowGrid, closed: int | None) -> DataFrame:
        """Partial rows of a snapshot of window ``before`` with their frames moved up to this window's grid.

        Frames that the old window no longer needed are left out whether or not they had been removed yet, so that
        the result does not depend on when the store was compacted.
        """
        if closed is not None:
            partials = partials.where(F.col("frame") > closed + before.step - before.size)
        moved = partials.withColumn("frame", self.frame_of(F.col("frame") - 1))
        end = self.realigned_end(before, closed)
        if end is not None:
            moved = moved.where(F.col("frame") > end + self.window.step - self.window.size)
        return self.accumulators.group(moved, *self.keys, "frame")

    def partitioned(self, partials: DataFrame) -> DataFrame:
        """The partial rows hash-partitioned by the keys, and held in the executors once a job has read them."""
        keys = self.accumulators.once.columns(*self.keys)
        return partials.repartition(self.partitions, *keys).localCheckpoint(eager=False)

    def _frames(self) -> DataFrame:
        return reduce(DataFrame.unionByName, [segment.partials for segment in self.segments])
