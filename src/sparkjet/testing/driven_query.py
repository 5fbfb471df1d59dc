"""The query of a stream driver: a function of its input streams, applied to streams and to each batch of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sparkjet.api.aggregate_rows import AggregateRows
from sparkjet.api.diverted import DeadLetters
from sparkjet.api.grouped import LateStream
from sparkjet.api.stream import Stream, stream
from sparkjet.errors import AnalysisError
from sparkjet.plan.plan import Plan
from sparkjet.plan.planning import plan_of
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from sparkjet.testing.collecting_sink import CollectingSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Sink
    from sparkjet.testing.driven_source import DrivenSource
    from sparkjet.testing.driver_options import DriverOptions

Result: TypeAlias = AggregateRows | DeadLetters | LateStream | Stream
Query: TypeAlias = Callable[..., Result | Sequence[Result]]
"""The query under test: a function of its input streams."""


class DrivenQuery:
    """The computation of a driven query, and what Spark would pass to it.

    Args:
        query: The user's function.
        source: The source of the rows.
        sinks: A sink for each output; if there are none, a :class:`CollectingSink` each.
        options: The query's options.

    Raises:
        AnalysisError: The query does not return results, or the number of sinks does not match.
    """

    def __init__(self, query: Query, source: DrivenSource, sinks: Sequence[Sink], options: DriverOptions) -> None:
        self._query = query
        self._source = source
        self._options = options
        results = self._results([stream(each) for each in source.streams()])
        self.sinks: Sequence[Sink] = tuple(sinks) or tuple(CollectingSink() for _ in results)
        if len(self.sinks) != len(results):
            message = f"StreamDriver: {len(self.sinks)} sinks for {len(results)} outputs. Give one for each, in order."
            raise AnalysisError(message)
        self.plan = self._plan(results)

    def batch(self, session: SparkSession, batch: int) -> DataFrame:
        """A batch as Spark passes it to ``foreachBatch``: its rows, transformed as they are before the watermark."""
        frames = self._source.read(session, batch)
        # Not stream(…), which accepts only a streaming DataFrame.
        return self._plan(self._results([Stream(Feed(Transformations(frame, frame))) for frame in frames])).source

    def _results(self, streams: Sequence[Stream]) -> list[Result]:
        found: object = self._query(*streams)
        results: list[Result] = []
        for result in found if isinstance(found, Sequence) else [found]:
            if not isinstance(result, (AggregateRows, DeadLetters, LateStream, Stream)):
                message = (
                    f"StreamDriver: the query returned a {type(result).__name__}. Return what groupBy(…).agg(…) gives, "
                    "its lateRows, a stream, its deadLetters, or a list of these."
                )
                raise AnalysisError(message)
            results.append(result)
        return results

    def _plan(self, results: Sequence[Result]) -> Plan:
        outputs = enumerate(zip(results, self.sinks, strict=True))
        return plan_of([self._options.output(f"out{number}", *output) for number, output in outputs])
