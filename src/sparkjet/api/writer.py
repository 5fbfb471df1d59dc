"""The way from a result to a sink: its options and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.catalyst.columns import HIDDEN, IS_EARLY
from sparkjet.catalyst.plan_analysis import check_stable
from sparkjet.clock import Clock, SystemClock
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import SINK_OPTIONS, Options, file_writer_options
from sparkjet.plan.plan import Output, Rows
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.files import FORMATS, FilesSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.protocol import Keyed, Sink
from sparkjet.storage.paths import local_path
from sparkjet.time import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.api.query import StreamingQuery
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.plan.transformations import Transformations
    from sparkjet.plan.windowed_aggregation import WindowedAggregation

_SINK_PARTS = ("guarantee", "check", "prepare", "commit", "abort_orphans")
_SPARK_FORMATS = {"parquet": "parquet", "json": "json", "csv": "csv"}


class StreamWriter:
    """Settings of one output, with the names of Spark's ``DataStreamWriter``; each method returns the writer.

    Start a query of one output with :meth:`start`, one of several with :func:`sparkjet.start`.
    """

    def __init__(self, aggregation: WindowedAggregation, steps: Transformations, rows: Rows) -> None:
        self.aggregation = aggregation
        self.rows = rows
        self.settings: dict[str, str] = {}
        self.name: str | None = None
        self.chosen_trigger: dict[str, str | bool] | None = None
        self.chosen_clock: Clock | None = None
        self.listener: PhaseListener | None = None
        self._steps = steps
        self._format: str | None = None
        self._update = False
        self._partition_by: tuple[str, ...] = ()
        self._function: Callable[[DataFrame, int], None] | None = None
        self._own: Sink | None = None

    def format(self, source: str | Sink) -> Self:
        """Choose the sink: one of :data:`sparkjet.options.SINK_OPTIONS`; see also :meth:`foreachBatch`.

        Or a sink of your own: an object of the protocol :class:`sparkjet.sinks.Sink`, one for each output.
        """
        self._own = None
        if not isinstance(source, str):
            missing = [part for part in _SINK_PARTS if not hasattr(source, part)]
            if missing:
                message = (
                    f"format: a {type(source).__name__} is no sink, it has no {missing[0]!r}. Give the name of a "
                    f"format, or an object that has {', '.join(_SINK_PARTS)}: see sparkjet.sinks.Sink."
                )
                raise AnalysisError(message)
            self._format, self._own = type(source).__name__, source
            return self
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
            self.settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: object) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> Self:
        """``append`` (default): every row is final. ``update``: also early rows of windows that are still open.

        Rows then have a column ``is_early``; early ones come with every batch, or at the intervals of
        ``option("earlyResultsPeriod", "10 seconds")``. They may repeat, final ones never do.
        """
        if outputMode.lower() not in {"append", "update"}:
            message = (
                f'outputMode: "{outputMode}" is not supported. Use "append" for final rows, or "update" for early rows '
                "of open windows as well."
            )
            raise AnalysisError(message)
        self._update = outputMode.lower() == "update"
        return self

    def partitionBy(self, *cols: str) -> Self:
        """Columns that become directories of the files sink."""
        self._partition_by = cols
        return self

    def queryName(self, queryName: str) -> Self:
        """Name of the query, and of the table of the memory sink."""
        self.name = queryName
        return self

    def trigger(self, *, processingTime: str | None = None, availableNow: bool | None = None) -> Self:
        """When micro-batches run: as often as possible by default, at an interval, or until the input is used up."""
        if (processingTime is None) == (availableNow is None):
            message = 'trigger: give either processingTime="…" or availableNow=True.'
            raise AnalysisError(message)
        if processingTime is not None:
            parse_duration(processingTime, "processingTime")
            self.chosen_trigger = {"processingTime": processingTime}
        else:
            self.chosen_trigger = {"availableNow": True} if availableNow else None
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> Self:
        """Call ``func(rows, epoch)`` with each epoch's rows; see :class:`sparkjet.sinks.ForeachBatchSink`."""
        self._format, self._function, self._own = "foreachBatch", func, None
        return self

    def clock(self, clock: Clock) -> Self:
        """The clock of policies and idle timeouts; the wall clock by default. For tests."""
        self.chosen_clock = clock
        return self

    def onEpochPhase(self, listener: PhaseListener) -> Self:
        """Call ``listener(phase, epoch)`` on the driver at the end of each phase; for tracing and fault tests."""
        self.listener = listener
        return self

    def start(self, path: str | None = None) -> StreamingQuery:
        """Check everything, recover what an earlier run left, and start.

        Args:
            path: Same as the option ``path``.

        Raises:
            AnalysisError: If anything is set wrongly; nothing has been started or changed.
            RecoveryError: If the stored state cannot be continued safely.
        """
        from sparkjet.api.start import start  # noqa: PLC0415 - that module imports this one

        if path is not None:
            self.option("path", path)
        return start(self)

    def output(self, name: str) -> Output:
        """This output under the name that the record has for it.

        Raises:
            AnalysisError: If anything is set wrongly.
        """
        if self._format is None:
            message = 'start: choose a sink, e.g. format("files") or foreachBatch(…).'
            raise AnalysisError(message)
        options = Options(self.settings)
        options.check(self._format)
        if self._partition_by and self._format != "files":
            message = f'partitionBy: format("{self._format}") has no directories; use it with format("files").'
            raise AnalysisError(message)
        shape, sink = self._steps.source, self._sink(options)
        early = self._early_period(options)
        output = Output(name, self.aggregation, self.rows, shape, self._finished, sink, self._format, early)
        if isinstance(sink, Keyed):
            check_stable(output.finished(shape), sink.keys)
        return output

    @property
    def keeps_files(self) -> bool:
        """Whether the output outlives the session, so that its query needs a home that does."""
        return self._own is not None or self._format in {"files", "kafka", "postgres"}

    def _finished(self, rows: DataFrame) -> DataFrame:
        return self._steps.apply(rows).drop(*HIDDEN)

    def _early_period(self, options: Options) -> int | None:
        given = options.get("earlyResultsPeriod")
        if not self._update:
            if given is not None:
                message = 'earlyResultsPeriod: early rows need outputMode("update").'
                raise AnalysisError(message)
            return None
        if self.rows is Rows.LATE:
            message = 'outputMode: late rows are never early; use "append".'
            raise AnalysisError(message)
        if IS_EARLY in self._steps.shape.columns:
            message = f'outputMode("update") adds a column {IS_EARLY!r}, which exists already. Rename yours.'
            raise AnalysisError(message)
        return 0 if given is None else parse_duration(given, "earlyResultsPeriod", minimum=1)

    def _sink(self, options: Options) -> Sink:
        if self._own is not None:
            return self._own
        if self._format == "foreachBatch":
            assert self._function is not None  # noqa: S101 - set together
            return ForeachBatchSink(self._function)
        if self._format == "console":
            return ConsoleSink(options.number("numRows", default=20), truncate=options.flag("truncate", default=True))
        if self._format == "memory":
            return MemorySink(self.name or "", self._steps.source.sparkSession)
        if self._format in _EXTRAS:
            return _EXTRAS[self._format](options)
        path = options.get("path")
        if path is None:
            message = 'start: format("files") needs a directory: start("…") or option("path", "…").'
            raise AnalysisError(message)
        return FilesSink(
            local_path(path, "path"),
            options.choice("fileFormat", FORMATS, "parquet"),
            self._partition_by,
            file_writer_options(options),
            retention=options.age("retention"),
            clock=self.chosen_clock or SystemClock(),
        )


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Say which extra of sparkjet holds what an import misses."""
    try:
        yield
    except ImportError as error:
        message = f'format("{name}") needs {error.name}: pip install "sparkjet[{name}]".'
        raise AnalysisError(message) from error


def _postgres(options: Options) -> Sink:
    with _extra("postgres"):
        from sparkjet.sinks.postgres.settings import PostgresSettings  # noqa: PLC0415 - the extra is optional
        from sparkjet.sinks.postgres.sink import PostgresSink  # noqa: PLC0415 - as above
    return PostgresSink(PostgresSettings.of(options))


def _kafka(options: Options) -> Sink:
    with _extra("kafka"):
        from sparkjet.sinks.kafka.producer_settings import KafkaSettings  # noqa: PLC0415 - the extra is optional
        from sparkjet.sinks.kafka.sink import KafkaSink  # noqa: PLC0415 - as above
    return KafkaSink(KafkaSettings.of(options))


_EXTRAS = {"kafka": _kafka, "postgres": _postgres}
"""Sinks whose libraries not everyone needs."""
