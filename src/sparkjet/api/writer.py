"""The path from a result to a sink, with the names of Spark's ``DataStreamWriter``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Self

from sparkjet.api.checks import checked
from sparkjet.api.guided import Guided
from sparkjet.api.output_modes import mode_of
from sparkjet.api.output_settings import OutputSettings
from sparkjet.api.sink_formats import ChosenSink, sink_format
from sparkjet.catalyst import alternatives
from sparkjet.clock import Clock
from sparkjet.connectors.delta.format import SINK as DELTA
from sparkjet.connectors.spark_formats import FILES, FOREACH, FOREACH_BATCH, TABLE
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import PATH, Options
from sparkjet.sinks.foreach import ForeachSink
from sparkjet.sinks.foreach_batch import BatchFunction, takes_info
from sparkjet.sinks.table import provider_of
from sparkjet.time import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql._typing import SupportsProcess

    from sparkjet.api.query import StreamingQuery
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.sinks.protocol import Sink


class StreamWriter(Guided):
    """Settings of one output, with the names of Spark's ``DataStreamWriter``; each method returns the writer.

    Start a query with one output with :meth:`start`, one with several outputs with :func:`sparkjet.start`. Spark's
    writer has no :meth:`clock` and no :meth:`onEpochPhase`.
    """

    _alternatives = alternatives.WRITERS

    def __init__(self, settings: OutputSettings) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        given = self._settings
        sink = "none" if given.sink is None else given.sink.name
        return f"StreamWriter[format: {sink}, outputMode: {given.mode}, queryName: {given.name}]"

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    def format(self, source: str | Sink) -> Self:
        """Choose the sink: one of :data:`sparkjet.connectors.formats.SINKS`; see also :meth:`foreachBatch`.

        ``parquet``, ``orc``, ``json``, ``csv`` and ``text`` are the files sink with that ``fileFormat``.

        Or your own sink: an object of the protocol :class:`sparkjet.sinks.Sink`, one for each output.
        """
        return self._with(sink=sink_format(source))

    def option(self, key: str, value: object) -> Self:
        """Set an option; names are case-insensitive, unknown ones are refused by :meth:`start`."""
        name: object = key
        if not isinstance(name, str):
            raise AnalysisError(f'option: {name!r} is not the name of an option. Give text, as in option("path", "…").')
        if value is None:
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return self._with(options={**self._settings.options, key: text})

    def options(self, **options: object) -> Self:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> Self:
        """The results to emit: with ``append`` (default), those that are final.

        With ``update``, those that have changed, as in Spark. With ``complete``, all, in each epoch that has rows.

        For windows, ``update`` also emits rows while they are open: with each batch, or at the interval of
        ``option("earlyResultsPeriod", "10 seconds")``. With ``option("isEarly", True)`` rows have a column
        ``is_early``, and each window has one final row, whether or not it has changed.

        Aggregates without a window, or without a watermark, are never final: they need ``update`` or ``complete``. With
        ``complete``, windows are kept forever, and no row is late for one.
        """
        return self._with(mode=mode_of(outputMode))

    def partitionBy(self, *cols: str | Sequence[str]) -> Self:
        """Columns that become directories of the files sink, as separate arguments or as a list."""
        names = [name for col in cols for name in (col if isinstance(col, list | tuple) else [col])]
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise AnalysisError(f"partitionBy: {wrong[0]!r} is not the name of a column.")
        return self._with(partition_by=tuple(names))

    def queryName(self, queryName: str) -> Self:
        """Name of the query, and of the table of the memory sink."""
        given: object = queryName
        if not isinstance(given, str) or not given.strip():
            raise AnalysisError(f"queryName: {given!r} is not a name. Give text, or leave it out.")
        return self._with(name=queryName)

    @overload
    def trigger(self, *, processingTime: str) -> Self: ...

    @overload
    def trigger(self, *, availableNow: bool) -> Self: ...

    @overload
    def trigger(self, *, once: bool) -> Self: ...

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        availableNow: bool | None = None,
        once: bool | None = None,
        **unsupported: object,
    ) -> Self:
        """When micro-batches run: as often as possible (default), at an interval, or until the input is used up.

        ``once`` is another name for ``availableNow``, which reads the same input, in several batches if necessary.
        """
        for name in (name for name, value in unsupported.items() if value is not None):
            hint = alternatives.TRIGGERS.get(name)
            known = nearest(name, ("processingTime", "availableNow"))
            message = f"trigger: {hint}" if hint is not None else f"trigger: there is no trigger {name!r}; {known}."
            raise AnalysisError(message)
        if sum(given is not None for given in (processingTime, availableNow, once)) != 1:
            raise AnalysisError('trigger: give either processingTime="…" or availableNow=True.')
        if processingTime is not None:
            given: object = processingTime
            if not isinstance(given, str):
                # Spark accepts no other.
                raise AnalysisError(f'trigger: processingTime={given!r} is not text, as in processingTime="5 seconds".')
            parse_duration(processingTime, "processingTime")
            return self._with(trigger={"processingTime": processingTime})
        return self._with(trigger={"availableNow": True} if availableNow or once else None)

    def foreach(self, f: Callable[[Row], object] | SupportsProcess) -> Self:
        """Call ``f(row)`` on the executors, or ``open``, ``process`` and ``close`` of an object; at least once.

        See :class:`sparkjet.sinks.foreach.ForeachSink`.
        """
        ForeachSink(f)
        return self._with(sink=ChosenSink(FOREACH, function=f))

    def foreachBatch(self, func: BatchFunction) -> Self:
        """Call ``func(rows, epoch)`` or ``func(rows, epoch, info)`` with each epoch's rows; at least once.

        ``info`` is a :class:`sparkjet.EpochInfo`. See :class:`sparkjet.sinks.foreach_batch.ForeachBatchSink`.
        """
        takes_info(func)
        return self._with(sink=ChosenSink(FOREACH_BATCH, function=func))

    def clock(self, clock: Clock) -> Self:
        """The clock of policies and idle timeouts; the wall clock by default. For tests."""
        return self._with(clock=clock)

    def onEpochPhase(self, listener: PhaseListener) -> Self:
        """Call ``listener(phase, epoch)`` on the driver at the end of each phase; for tracing and fault tests."""
        return self._with(listener=listener)

    def start(
        self,
        path: str | None = None,
        format: str | Sink | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamingQuery:
        """Check everything, recover what an earlier run left, and start.

        Args:
            path: Same as the option ``path``.
            format: As in :meth:`format`; with a path and without a format, files of ``spark.sql.sources.default``.
            outputMode: As in :meth:`outputMode`.
            partitionBy: As in :meth:`partitionBy`.
            queryName: As in :meth:`queryName`.
            options: As in :meth:`options`.

        Raises:
            AnalysisError: If anything is set wrongly; nothing has been started or changed.
            RecoveryError: If the stored state cannot be continued safely.
        """
        if path is not None:
            self.option("path", path)
        self._given(format, outputMode, partitionBy, queryName, options)
        if self._settings.sink is None and PATH in Options(self._settings.options):
            self.format(str(self._settings.chain.source.sparkSession.conf.get("spark.sql.sources.default")))
        return checked([self._settings]).start()

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: object,
    ) -> StreamingQuery:
        """Start the query with a table of Spark's catalog as its sink, which gets each row exactly once.

        The table may be one of files (parquet, orc, json, csv or text), created if there is none: like a directory of
        ``format("files")``. Or it may be a Delta table in that catalog, for which a new one needs ``format("delta")``;
        or, with ``format("iceberg")``, a table in an Iceberg catalog. Tables of other formats and catalogs are refused.

        Args:
            tableName: Name of the table, with or without its database.
            format: The format of the files; ``parquet`` or that of the table by default.
            outputMode: As in :meth:`outputMode`.
            partitionBy: As in :meth:`partitionBy`.
            queryName: As in :meth:`queryName`.
            options: As in :meth:`options`, those of ``format("files")``; ``path`` is the directory of a new table.

        Raises:
            AnalysisError: If anything is set wrongly; nothing has been started or changed.
            RecoveryError: If the stored state cannot be continued safely.
        """
        writer = self._given(format, outputMode, partitionBy, queryName, options)
        chosen = settings_of(writer).sink
        if chosen is not None and chosen.format.takes_table:
            return self._with(sink=replace(chosen, table=tableName)).start()
        if chosen is not None and chosen.format is not FILES:
            message = (
                f'toTable: format("{chosen.name}") is not one of files or tables. Give delta, iceberg, parquet, orc, '
                "json, csv or text."
            )
            raise AnalysisError(message)
        if chosen is None and provider_of(tableName, self._settings.chain.source.sparkSession) == DELTA.name:
            return self._with(sink=ChosenSink(DELTA, table=tableName)).start()
        file_format = None if chosen is None else chosen.file_format
        return self._with(sink=ChosenSink(TABLE, table=tableName, file_format=file_format)).start()

    def _given(
        self,
        format: str | Sink | None,
        outputMode: str | None,
        partitionBy: str | Sequence[str] | None,
        queryName: str | None,
        options: Mapping[str, object],
    ) -> Self:
        """The arguments that ``start`` and ``toTable`` share."""
        self.options(**options)
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        return self


def all_settings(writers: StreamWriter | Sequence[StreamWriter]) -> list[OutputSettings]:
    """The settings of one writer, or of each of several; see :func:`settings_of`."""
    return [settings_of(each) for each in (writers if isinstance(writers, Sequence) else (writers,))]


def settings_of(writer: StreamWriter) -> OutputSettings:
    """The settings of a writer; not one of its methods, which are for users.

    Raises:
        AnalysisError: It is not a writer.
    """
    given: object = writer
    if not isinstance(given, StreamWriter):
        raise AnalysisError(f"start: expected a writer, got {type(given).__name__}. Give result.writeStream.format(…).")
    return given._settings  # noqa: SLF001
