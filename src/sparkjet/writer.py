"""The way from a result to a sink: options, checks, and the start of a query."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.clock import Clock, SystemClock
from sparkjet.columns import visible
from sparkjet.engine.epoch import LATE_ROWS, RESULTS
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import SINK_OPTIONS, Options, file_writer_options
from sparkjet.paths import local_path
from sparkjet.query import Launch, StreamingQuery, Trigger
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.files import FORMATS, FilesSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.chain import Steps
    from sparkjet.engine.pipeline import Pipeline
    from sparkjet.engine.steps import StepListener
    from sparkjet.sinks.protocol import Sink

logger = logging.getLogger("sparkjet")

LATE_COLUMNS = ("_substream", "_watermark", "_reason")
_SPARK_FORMATS = {"parquet": "parquet", "json": "json", "csv": "csv"}


class StreamWriter:
    """Settings of a query's sink, with the names of Spark's ``DataStreamWriter``; each method returns the writer."""

    def __init__(self, pipeline: Pipeline, steps: Steps) -> None:
        self._pipeline = replace(pipeline, finishing=steps.apply)
        self._result = steps.shape
        self._format: str | None = None
        self._options: dict[str, str] = {}
        self._partition_by: tuple[str, ...] = ()
        self._trigger = Trigger()
        self._name: str | None = None
        self._function: Callable[[DataFrame, int], None] | None = None
        self._clock: Clock = SystemClock()
        self._listener: StepListener = lambda step, epoch: None  # noqa: ARG005 - the shape of a listener

    def format(self, source: str) -> Self:
        """Choose the sink: ``files``, ``memory`` or ``console``; see also :meth:`foreachBatch`."""
        if source in _SPARK_FORMATS:
            message = f'format: use format("files").option("fileFormat", "{source}") for transactional {source} files.'
            raise AnalysisError(message)
        if source not in SINK_OPTIONS:
            message = f'format: no sink "{source}"; {nearest(source, SINK_OPTIONS)}'
            raise AnalysisError(message)
        self._format = source
        return self

    def option(self, key: str, value: object) -> Self:
        """Set an option; names ignore case, unknown ones are refused by :meth:`start`."""
        if value is not None:
            self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: object) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> Self:
        """Only ``append``: every row is final."""
        if outputMode.lower() != "append":
            message = f'outputMode: "{outputMode}" is not supported; windows are emitted once, so use "append".'
            raise AnalysisError(message)
        return self

    def partitionBy(self, *cols: str) -> Self:
        """Columns that become directories of the files sink."""
        self._partition_by = cols
        return self

    def queryName(self, queryName: str) -> Self:
        """Name of the query, and of the table of the memory sink."""
        self._name = queryName
        return self

    def trigger(self, *, processingTime: str | None = None, availableNow: bool | None = None) -> Self:
        """When micro-batches run: as often as possible by default, at an interval, or until the input is used up."""
        if (processingTime is None) == (availableNow is None):
            message = 'trigger: give either processingTime="…" or availableNow=True.'
            raise AnalysisError(message)
        self._trigger = Trigger(processingTime, available_now=bool(availableNow))
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> Self:
        """Call ``func(rows, epoch)`` with each epoch's rows; see :class:`sparkjet.sinks.ForeachBatchSink`."""
        self._format, self._function = "foreachBatch", func
        return self

    def clock(self, clock: Clock) -> Self:
        """The clock of policies and idle timeouts; the wall clock by default. For tests."""
        self._clock = clock
        return self

    def onEpochStep(self, listener: StepListener) -> Self:
        """Call ``listener(step, epoch)`` on the driver at each :class:`sparkjet.Step`; for tracing and fault tests."""
        self._listener = listener
        return self

    def start(self, path: str | None = None) -> StreamingQuery:
        """Check everything, recover what an earlier run left, and start.

        Args:
            path: Same as the option ``path``.

        Raises:
            AnalysisError: If anything is set wrongly; nothing has been started or changed.
            RecoveryError: If the stored state cannot be continued safely.
        """
        if path is not None:
            self.option("path", path)
        if self._format is None:
            message = 'start: choose a sink, e.g. format("files") or foreachBatch(…).'
            raise AnalysisError(message)
        options = Options(self._options)
        options.check(self._format)
        if self._partition_by and self._format != "files":
            message = f'partitionBy: format("{self._format}") has no directories; use it with format("files").'
            raise AnalysisError(message)
        close_at_end = options.flag("closeWindowsAtEnd")
        if close_at_end and not self._trigger.available_now:
            message = "closeWindowsAtEnd needs trigger(availableNow=True): other queries have no end."
            raise AnalysisError(message)
        session = self._pipeline.steps.source.sparkSession
        guarantee = options.choice("processingGuarantee", tuple(g.value for g in Guarantee), "exactly-once")
        sinks: dict[str, Sink] = {RESULTS: self._sink(options)}
        sinks[RESULTS].check(self._result.schema)
        late = options.get("lateRowsPath")
        if late is not None:
            sinks[LATE_ROWS] = self._late_sink(late)
        self._warn_of_weaker(sinks, Guarantee(guarantee))
        return Launch(
            pipeline=self._pipeline,
            sinks=sinks,
            home=local_path(self._home(options), "checkpointLocation"),
            guarantee=Guarantee(guarantee),
            partitions=options.number("statePartitions", default=session.sparkContext.defaultParallelism),
            trigger=self._trigger,
            close_at_end=close_at_end,
            name=self._name,
            clock=self._clock,
            listener=self._listener,
        ).start()

    def _sink(self, options: Options) -> Sink:
        if self._format == "foreachBatch":
            assert self._function is not None  # noqa: S101 - set together
            return ForeachBatchSink(self._function)
        if self._format == "console":
            return ConsoleSink(options.number("numRows", default=20), truncate=options.flag("truncate", default=True))
        if self._format == "memory":
            return MemorySink(self._name or "", self._pipeline.steps.source.sparkSession)
        path = options.get("path")
        if path is None:
            message = 'start: format("files") needs a directory: start("…") or option("path", "…").'
            raise AnalysisError(message)
        return FilesSink(
            local_path(path, "path"),
            options.choice("fileFormat", FORMATS, "parquet"),
            self._partition_by,
            file_writer_options(options),
        )

    def _late_sink(self, path: str) -> Sink:
        shape = self._pipeline.steps.shape
        taken = [name for name in visible(shape) if name in LATE_COLUMNS]
        if taken:
            message = f"lateRowsPath: the column {taken[0]!r} exists already and is added to late rows. Rename yours."
            raise AnalysisError(message)
        sink = FilesSink(local_path(path, "lateRowsPath"), option="lateRowsPath")
        sink.check(shape.schema)
        return sink

    def _home(self, options: Options) -> str:
        """The query's directory: as given, else below Spark's default, else temporary where losing it is no harm."""
        given = options.get("checkpointLocation")
        if given is not None:
            return given
        session = self._pipeline.steps.source.sparkSession
        default = session.conf.get("spark.sql.streaming.checkpointLocation", None)
        if default is not None and self._name is not None:
            return f"{default.rstrip('/')}/{self._name}"
        if self._format == "files":
            message = 'start: format("files") needs option("checkpointLocation", "…"), the home of the query\'s state.'
            raise AnalysisError(message)
        return tempfile.mkdtemp(prefix="sparkjet-")

    def _warn_of_weaker(self, sinks: dict[str, Sink], guarantee: Guarantee) -> None:
        for name, sink in sinks.items():
            if guarantee is Guarantee.EXACTLY_ONCE and sink.guarantee is not Guarantee.EXACTLY_ONCE:
                logger.warning(
                    "sink %r of query %s gives %s, not exactly-once", name, self._name or "", sink.guarantee.value
                )
