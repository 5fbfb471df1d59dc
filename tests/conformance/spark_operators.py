"""The window operators on Spark with their partial aggregation, driven by cases."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import AggregateOperation, Inputs
from sparkjet.catalyst.constants import older
from sparkjet.catalyst.kept_plans import KeptPlans
from sparkjet.state import Segment, SegmentStatistics
from sparkjet.state.partitions import hold, release
from sparkjet.time import MIN
from sparkjet.windows import Accumulators, SessionWindows, SlidingWindows, WindowOperator
from tests.conformance.verdicts import NotationError
from tests.conformance.window_rows import WindowRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.time import WindowGrid
    from tests.conformance.window_setups import Aggregate
    from tests.conformance.windows import Event

PARTITIONS = 1
_KEYS = ("key",)


class SparkOperator(ABC):
    """A window operator, called as the engine calls it in an epoch."""

    def __init__(self, session: SparkSession, aggregate: Aggregate) -> None:
        self._session = session
        self._type = "double" if aggregate.fractional else "long"
        shape = self._rows([]).withColumn("frame", F.col("time"))
        results = [("result", _operation(aggregate, shape))]
        self._aggregations = Accumulators.aggregations(results)
        partials = shape.groupBy(*_KEYS, "frame").agg(*self._aggregations)
        self._accumulators = Accumulators(results, partials.schema)
        self.late = 0

    @property
    @abstractmethod
    def operator(self) -> WindowOperator:
        """The current operator; a new one after a restore."""

    def accept(self, events: Sequence[Event]) -> None:
        """Add the rows of one epoch, without late ones."""
        operator = self.operator
        rows = self._rows(events).withColumn("frame", operator.frame_of(F.col("time")))
        late = older("time", operator.judged_by)
        self.late += len(rows.where(late).select("time").collect())
        bounds = [column.alias(name) for name, column in operator.bounds(F.col("time")).items()]
        grouped = rows.where(~late).groupBy(*_KEYS, "frame").agg(*bounds, *self._aggregations)
        partials = operator.partitioned(grouped)
        statistics = SegmentStatistics.measure(partials, KeptPlans())
        if statistics is None:
            release(partials)
        else:
            operator.append(Segment(partials, statistics))

    def close(self, watermark: int) -> list[WindowRow]:
        """The rows of the windows that a watermark closes, ascending by their end."""
        rows = _window_rows(self.operator.close(watermark), "r")
        self.operator.release()
        return rows

    def early(self) -> list[WindowRow]:
        """The rows of all open windows, ascending by their end; changes nothing."""
        return _window_rows(self.operator.early(), "early")

    def finish(self) -> list[WindowRow]:
        """The rows of all open windows, ascending by their end."""
        last = self.operator.open_until
        return [] if last is None else self.close(last)

    def is_empty(self) -> bool:
        """Whether no open window has rows."""
        last, closed = self.operator.open_until, self.operator.closed
        return last is None or (closed is not None and last <= closed)

    def dispose(self) -> None:
        """Free the operator's state."""
        self.operator.restore([], None)
        self.operator.release()

    def _rows(self, events: Sequence[Event]) -> DataFrame:
        # As JSON inside the plan: a DataFrame of Python objects would start a Python worker for every epoch.
        rows = [{"key": event.key, "time": event.time, "value": _plain(event.value)} for event in events]
        parsed = F.from_json(F.lit(json.dumps(rows)), f"array<struct<key string, time long, value {self._type}>>")
        return self._session.range(0, 1, 1, 1).select(F.inline(parsed))

    def _reread(self, directory: str) -> DataFrame | None:
        """The state as read from files, None if there is none."""
        segments = self.operator.segments
        if not segments:
            return None
        path = str(Path(directory) / "state")
        reduce(DataFrame.unionByName, [segment.partials for segment in segments]).write.parquet(path)
        return self._session.read.parquet(path)


class SparkWindows(SparkOperator):
    """A :class:`sparkjet.windows.SlidingWindows`."""

    def __init__(self, session: SparkSession, window: WindowGrid, aggregate: Aggregate) -> None:
        super().__init__(session, aggregate)
        self._operator = self._new(window)

    @property
    def operator(self) -> SlidingWindows:
        """The operator in use."""
        return self._operator

    def restore(self, window: WindowGrid | None) -> None:
        """Write the state to files, throw the operator away, and read the files into a new one."""
        before = self._operator
        changed = window is not None and window != before.window
        after = self._new(before.window if window is None else window)
        segments = []
        with tempfile.TemporaryDirectory() as directory:
            saved = self._reread(directory)
            if saved is not None:
                moved = after.realigned(saved, before.window, before.closed) if changed else saved
                partials = after.partitioned(moved)
                statistics = SegmentStatistics.measure(partials, KeptPlans())
                segments = [] if statistics is None else [Segment(partials, statistics)]
        after.restore(segments, after.realigned_end(before.closed) if changed else before.closed)
        self.dispose()
        self._operator = after

    def _new(self, window: WindowGrid) -> SlidingWindows:
        return SlidingWindows(window, _KEYS, self._accumulators, PARTITIONS)


class SparkSessions(SparkOperator):
    """A :class:`sparkjet.windows.SessionWindows`."""

    def __init__(self, session: SparkSession, gap: int, aggregate: Aggregate) -> None:
        super().__init__(session, aggregate)
        self._gap = gap
        self._operator = self._new(gap)

    @property
    def operator(self) -> SessionWindows:
        """The operator in use."""
        return self._operator

    def restore(self, window: WindowGrid | None) -> None:
        """Write the state to files, throw the operator away, and read the files into a new one.

        Raises:
            NotationError: The restored operator would have a different window.
        """
        if window is not None:
            raise NotationError(f"sessions cannot go on as {window}")
        # An epoch without a new watermark: rows become state, and so part of a snapshot, when an epoch ends.
        self.operator.close(MIN)
        before, after = self._operator, self._new(self._gap)
        segments = []
        with tempfile.TemporaryDirectory() as directory:
            saved = self._reread(directory)
            if saved is not None:
                known = [segment.statistics for segment in before.segments]
                rows, low, high = sum(s.rows for s in known), min(s.low for s in known), max(s.high for s in known)
                partials = after.partitioned(saved)
                # The first job that reads it may run after the directory is gone.
                hold(partials)
                segments = [Segment(partials, SegmentStatistics(rows, low, high))]
        after.restore(segments, before.closed)
        self.dispose()
        self._operator = after

    def _new(self, gap: int) -> SessionWindows:
        return SessionWindows(gap, None, _KEYS, self._accumulators, PARTITIONS)


def _window_rows(windows: DataFrame | None, kind: str) -> list[WindowRow]:
    found = [] if windows is None else windows.select("start", "end", *_KEYS, "result").collect()
    rows = [WindowRow(start, end, key, Fraction(result), kind) for start, end, key, result in found]
    return sorted(rows, key=lambda row: row.end)


def _operation(aggregate: Aggregate, shape: DataFrame) -> AggregateOperation:
    functions = {"SUM": J.sum, "AVG": J.avg, "MAX": J.max, "MIN": J.min}
    chosen = J.count() if aggregate.function == "CNT" else functions[aggregate.function]("value")
    operation = chosen.resolve(Inputs(shape, F.col("time")))
    return operation if aggregate.deduct else replace(operation, deduct=None)


def _plain(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
