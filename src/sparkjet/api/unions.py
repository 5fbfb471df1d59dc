"""The methods of a stream that unite it with another one."""

from __future__ import annotations

from abc import abstractmethod

from pyspark.sql import functions as F
from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError
from sparkjet.plan.backfill import backfilled
from sparkjet.plan.event_time import EventTime, check_union
from sparkjet.plan.expectations import expected
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from sparkjet.plan.union import united


class Unions(FrameMethods):
    """The methods of a stream that unite it with another one, with Spark's names and arguments."""

    _feed: Feed

    @property
    @abstractmethod
    def _event_time(self) -> EventTime | None:
        """The event time of the rows, None without a watermark."""

    @abstractmethod
    def _of(self, feed: Feed, event_time: EventTime | None = None) -> Self:
        """Another stream."""

    def union(self, other: Self) -> Self:
        """The rows of both streams, column by column, as ``DataFrame.union``; each keeps its own watermark policy.

        The watermark is the minimum over all substreams of all inputs. Their names are prefixed with ``1/`` and ``2/``,
        or with the streams' :meth:`alias`. Windows refer to this stream's event-time column. Two streams without a
        watermark become one, which may be given one for all its rows.

        Filter after the union rather than before: with a ``where`` before it, each batch is persisted in memory and
        read once for each side.

        Raises:
            AnalysisError: Not a stream, a watermark on only one of them, different columns, or an event time that was
                replaced or is not in the same position in both.
        """
        given: object = other
        if not isinstance(given, Unions):
            raise AnalysisError(f"union: expected a stream, got {type(given).__name__}. Start it with sj.stream(…).")
        if backfilled(self._chain.shape) or backfilled(other._chain.shape):
            message = (
                "union: one of the streams begins with a history. Unite the DataFrames, and give these a history: "
                "sj.backfill(history, live.union(other), …)."
            )
            raise AnalysisError(message)
        if self._feed.parent is not None or other._feed.parent is not None:
            message = "union: one of the streams is the result of a stateful step. Unite them before that step."
            raise AnalysisError(message)
        if self._chain.divert is not None or other._chain.divert is not None:
            raise AnalysisError("union: rows of one of the streams are diverted. Call divert(…) on the union.")
        if expected(self._chain.all_links) or expected(other._chain.all_links):
            message = "union: rows of one of the streams are counted by expectations. Call expect(…) on the union."
            raise AnalysisError(message)
        if len(self.columns) != len(other.columns):
            message = (
                f"union: the columns {self.columns} and {other.columns} do not match one by one. Select as many of "
                "both, or use unionByName(…, allowMissingColumns=True)."
            )
            raise AnalysisError(message)
        self._chain.check_fixed("union")
        other._chain.check_fixed("union")
        if self._event_time is None and other._event_time is None:
            rows = self._chain.shape.union(other._chain.shape)
            return self._of(Feed(Transformations(rows, rows)))
        if self._event_time is None or other._event_time is None:
            message = (
                "union: only one of the streams has a watermark. Call withWatermark(…) on the other one too, or once "
                "on the union of streams without."
            )
            raise AnalysisError(message)
        names = (self._feed.name or "1", other._feed.name or "2")
        if names[0] == names[1]:
            message = f"union: both streams are called {names[0]!r}. Give one of them another name with alias(…)."
            raise AnalysisError(message)
        pairs = [(names[0], each) for each in self._feed.inputs] + [(names[1], each) for each in other._feed.inputs]
        inputs = tuple(each.below(f"{name}/") for name, each in pairs)
        check_union((self._event_time, other._event_time), (self._chain.shape, other._chain.shape))
        chain = united(self._chain, other._chain, names)
        return self._of(Feed(chain, inputs), EventTime.of_watermark(self._event_time.name, chain.shape))

    def unionAll(self, other: Self) -> Self:
        """Alias of :meth:`union`."""
        return self.union(other)

    def unionByName(self, other: Self, allowMissingColumns: bool = False) -> Self:
        """The rows of both streams, column by name, as ``DataFrame.unionByName``; see :meth:`union`.

        Args:
            other: The other stream.
            allowMissingColumns: Whether a column that only one of them has is null in the rows of the other.
        """
        sides = (self._filled(other), other._filled(self)) if allowMissingColumns else (self, other)
        missing = sorted(set(sides[0].columns) ^ set(sides[1].columns))
        if missing:
            message = (
                f"unionByName: only one of the two streams has a column {missing[0]!r}. Drop it, or have it null in "
                "the rows of the other with allowMissingColumns=True."
            )
            raise AnalysisError(message)
        return sides[0].union(sides[1].select(*(quoted(name) for name in sides[0].columns)))

    def _filled(self, other: Self) -> Self:
        """The stream with nulls in the columns that only the other one has."""
        lacking = [field for field in other.schema if field.name not in self.columns]
        return self.withColumns({each.name: F.lit(None).cast(each.dataType) for each in lacking}) if lacking else self
