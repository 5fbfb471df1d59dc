"""The formats that Spark has too: files and tables of them, memory, console, foreach, foreachBatch and noop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.format import SinkFormat, Target, always
from sparkjet.errors import AnalysisError
from sparkjet.options import (
    COMPRESSION,
    MAX_RECORDS_PER_FILE,
    PROGRESS_INTERVAL,
    Option,
    choice,
    flag,
    interval,
    number,
    text,
)
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.file_formats import FORMATS
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.foreach import ForeachSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.noop import NoopSink
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.table import table_sink
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


_PATH = text("path", "Output directory, a path or a URI.")
_FILE_FORMAT = choice("fileFormat", "Format of the files; or name it in format(…).", FORMATS, "parquet")
_RETENTION = interval(
    "retention", "How long read_files lists an epoch's files, as in Spark's file sink; forever by default."
)
WRITERS: Sequence[Option[Any]] = (
    COMPRESSION,
    MAX_RECORDS_PER_FILE,
    flag("header", "csv: whether files start with the column names."),
    text("sep", "csv: separator.", ","),
    text("delimiter", "csv: the same.", ","),
    text("quote", "csv: quoting character.", '"'),
    flag("quoteAll", "csv: whether every value is quoted."),
    text("escape", "csv: escaping character.", "\\"),
    flag("escapeQuotes", "csv: whether values with quotes are quoted.", default=True),
    text("charToEscapeQuoteEscaping", "csv: character that escapes the escape of a quote."),
    flag("ignoreLeadingWhiteSpace", "csv: whether values lose leading white space.", default=True),
    flag("ignoreTrailingWhiteSpace", "csv: whether values lose trailing white space.", default=True),
    text("nullValue", "csv: text of a null."),
    text("emptyValue", "csv: text of an empty string.", '""'),
    text("encoding", "csv, json and text: character set.", "UTF-8"),
    text("lineSep", "csv, json and text: line separator.", "\\n"),
    text("dateFormat", "csv and json: pattern of dates.", "yyyy-MM-dd"),
    text("timestampFormat", "csv and json: pattern of timestamps."),
    text("timestampNTZFormat", "csv and json: pattern of timestamps without time zone."),
    text("timeZone", "csv and json: zone of timestamps; the session's by default."),
    text("locale", "csv and json: language of dates and timestamps.", "en-US"),
    flag("ignoreNullFields", "json: whether to leave null fields out.", default=True),
)
"""The options of files that are passed to Spark's writer."""
FILE_OPTIONS: Sequence[Option[Any]] = (_PATH, _FILE_FORMAT, _RETENTION, PROGRESS_INTERVAL, *WRITERS)
"""Options of ``format("files")``."""

_NUM_ROWS = number("numRows", "Number of rows to print of each epoch.", 20, least=0)
_TRUNCATE = flag("truncate", "Whether to truncate long values.", default=True)


def _files(target: Target) -> Sink:
    options, named = target.options, target.file_format
    path = options[_PATH]
    if path is None:
        message = f'start: format("{named or FILES.name}") needs a directory: start("…") or option("path", "…").'
        raise AnalysisError(message)
    file_format = options[_FILE_FORMAT.defaulting_to(named or _FILE_FORMAT.otherwise)]
    if named not in {None, file_format}:
        raise AnalysisError(f'start: format("{named}") contradicts fileFormat="{file_format}". Leave one out.')
    at = partial(directory_at, option="path", session=lambda: target.session)
    return FilesSink(
        at(path),
        file_format,
        target.partition_by,
        options.among(WRITERS),
        retention=options[_RETENTION],
        clock=target.clock,
        at=at,
        pace=Pace.of(options),
    )


def _table(target: Target) -> Sink:
    options = target.options
    return table_sink(
        target.table,
        target.session,
        target.file_format or options.get(_FILE_FORMAT),
        target.partition_by,
        options.among(WRITERS),
        options[_PATH],
        retention=options[_RETENTION],
        clock=target.clock,
        pace=Pace.of(options),
    )


def _console(target: Target) -> Sink:
    options = target.options
    return ConsoleSink(options[_NUM_ROWS], truncate=options[_TRUNCATE])


def _foreach_batch(target: Target) -> Sink:
    return ForeachBatchSink(target.function, complete=target.complete)


def _memory(target: Target) -> Sink:
    return MemorySink(target.query, target.session, complete=target.complete)


FILES = SinkFormat("files", _files, FILE_OPTIONS, has_directories=True, only_adds=always, reads_once=True)
SCRATCH = SinkFormat("files", _files, FILE_OPTIONS)
"""Files for results of any mode, whose epochs someone compares: rows that replace earlier ones stand beside these."""
TABLE = SinkFormat(
    "table", _table, FILE_OPTIONS, method="toTable", has_directories=True, only_adds=always, reads_once=True
)
MEMORY = SinkFormat("memory", _memory, is_durable=False, reads_once=True)
CONSOLE = SinkFormat("console", _console, (_NUM_ROWS, _TRUNCATE), is_durable=False)
FOREACH = SinkFormat("foreach", lambda target: ForeachSink(target.function), is_durable=False, method="foreach")
FOREACH_BATCH = SinkFormat("foreachBatch", _foreach_batch, is_durable=False, method="foreachBatch")
NOOP = SinkFormat("noop", lambda _: NoopSink(), is_durable=False, reads_once=True)
SINKS = (FILES, TABLE, MEMORY, CONSOLE, FOREACH, FOREACH_BATCH, NOOP)
