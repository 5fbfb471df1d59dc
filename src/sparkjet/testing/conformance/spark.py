"""The window operator on Spark, driven by cases."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typing_extensions import Self

from sparkjet import functions as J
from sparkjet.aggregate import AggregateOperation, Inputs
from sparkjet.testing.conformance.window_rows import WindowRow
from sparkjet.windows import Accumulators, Segment, SegmentStatistics, SlidingWindows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from sparkjet.testing.conformance.window_setups import Aggregate
    from sparkjet.testing.conformance.windows import Event
    from sparkjet.time import WindowGrid

_KEYS = ("key",)
_PARTITIONS = 1


class SparkWindowDrivers:
    """Makes operators on one Spark session, started when the first one is wanted.

    Args:
        session: A running session to use; without one a local session is started, and stopped on leaving the context.
    """

    def __init__(self, session: SparkSession | None = None) -> None:
        self._own = session is None
        self._session = session
        self._isolated: SparkSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._own and self._session is not None:
            self._session.stop()
            self._session = self._isolated = None

    def open(self, window: WindowGrid, aggregate: Aggregate) -> SparkWindows:
        """An operator without state."""
        return SparkWindows(self._configured(), window, aggregate)

    def _configured(self) -> SparkSession:
        if self._session is None:
            self._session = (
                SparkSession.builder.master("local[2]")
                .appName("sparkjet-conformance")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
            self._session.sparkContext.setLogLevel("ERROR")
        if self._isolated is None:
            # Settings of a session of its own: those of the caller's must not change under its feet.
            self._isolated = self._session.newSession()
            self._isolated.conf.set("spark.sql.adaptive.enabled", "false")
            self._isolated.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS))
        return self._isolated


class SparkWindows:
    """A :class:`sparkjet.windows.SlidingWindows` with its stage 1, as the engine calls them in an epoch."""

    def __init__(self, session: SparkSession, window: WindowGrid, aggregate: Aggregate) -> None:
        self._session = session
        self._type = "double" if aggregate.fractional else "long"
        shape = self._rows([]).withColumn("frame", F.col("time"))
        results = [("result", _operation(aggregate, shape))]
        self._aggregations = Accumulators.aggregations(results)
        partials = shape.groupBy(*_KEYS, "frame").agg(*self._aggregations)
        self._accumulators = Accumulators(results, partials.schema)
        self._operator = self._new(window)
        self.late = 0

    def accept(self, events: Sequence[Event]) -> None:
        """Take the rows of one epoch, late ones out."""
        operator = self._operator
        rows = self._rows(events).withColumn("frame", operator.frame_of(F.col("time")))
        late = operator.is_late(F.col("time"))
        self.late += rows.where(late).count()
        partials = operator.partitioned(rows.where(~late).groupBy(*_KEYS, "frame").agg(*self._aggregations))
        statistics = SegmentStatistics.measure(partials)
        if statistics is not None:
            operator.append(Segment(partials, statistics))

    def close(self, watermark: int) -> list[WindowRow]:
        """The rows of the windows that a watermark closes, ascending by their end."""
        windows = self._operator.close(watermark)
        found = [] if windows is None else windows.select("start", "end", *_KEYS, "result").collect()
        self._operator.release()
        rows = [WindowRow(start, end, key, Fraction(result)) for start, end, key, result in found]
        return sorted(rows, key=lambda row: row.end)

    def finish(self) -> list[WindowRow]:
        """The rows of all windows that are open, ascending by their end."""
        last = self._operator.open_until
        return [] if last is None else self.close(last)

    def restore(self, window: WindowGrid) -> None:
        """Write the state to files, throw the operator away, and read the files into a new one."""
        before = self._operator
        after = self._new(window)
        segments = []
        with tempfile.TemporaryDirectory() as directory:
            if before.segments:
                path = str(Path(directory) / "state")
                reduce(DataFrame.unionByName, [segment.partials for segment in before.segments]).write.parquet(path)
                saved = self._session.read.parquet(path)
                moved = after.realigned(saved, before.window, before.closed) if window != before.window else saved
                partials = after.partitioned(moved)
                statistics = SegmentStatistics.measure(partials)
                segments = [] if statistics is None else [Segment(partials, statistics)]
        closed = after.realigned_end(before.window, before.closed) if window != before.window else before.closed
        after.restore(segments, closed)
        self.dispose()
        self._operator = after

    def is_empty(self) -> bool:
        """Whether no window that is still open holds anything."""
        last, closed = self._operator.open_until, self._operator.closed
        return last is None or (closed is not None and last <= closed)

    def dispose(self) -> None:
        """Free what the operator holds."""
        self._operator.restore([], None)
        self._operator.release()

    def _new(self, window: WindowGrid) -> SlidingWindows:
        return SlidingWindows(window, _KEYS, self._accumulators, _PARTITIONS)

    def _rows(self, events: Sequence[Event]) -> DataFrame:
        # As JSON inside the plan: a DataFrame of Python objects would start a Python worker for every epoch.
        rows = [{"key": event.key, "time": event.time, "value": _plain(event.value)} for event in events]
        parsed = F.from_json(F.lit(json.dumps(rows)), f"array<struct<key string, time long, value {self._type}>>")
        return self._session.range(1).select(F.inline(parsed))


def _operation(aggregate: Aggregate, shape: DataFrame) -> AggregateOperation:
    functions = {"SUM": J.sum, "AVG": J.avg, "MAX": J.max, "MIN": J.min}
    chosen = J.count() if aggregate.function == "CNT" else functions[aggregate.function]("value")
    operation = chosen.resolve(Inputs(shape, F.col("time")))
    return operation if aggregate.deduct else replace(operation, deduct=None)


def _plain(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
