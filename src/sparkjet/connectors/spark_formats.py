"""The formats that Spark has too: files and tables of them, memory, console, foreach, foreachBatch and noop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target, always
from sparkjet.errors import AnalysisError
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


FILE_OPTIONS: Mapping[str, str] = {
    "path": "Output directory, a path or a URI.",
    "fileFormat": "parquet (default), orc, json, csv or text; or name it in format(…).",
    "retention": "How long read_files lists an epoch's files, as in Spark's file sink: 12h, 7d, 30 days (for ever).",
    "progressInterval": "Least time between epochs without rows that tell readers of the watermark (none do).",
    "compression": "Codec, as in Spark's writer.",
    "maxRecordsPerFile": "As in Spark's writer.",
    "header": "csv: whether files start with the column names.",
    "sep": "csv: separator.",
    "delimiter": "csv: the same.",
    "quote": "csv: quoting character.",
    "quoteAll": "csv: whether every value is quoted.",
    "escape": "csv: escaping character.",
    "escapeQuotes": "csv: whether values with quotes are quoted.",
    "charToEscapeQuoteEscaping": "csv: character that escapes the escape of a quote.",
    "ignoreLeadingWhiteSpace": "csv: whether values lose leading white space.",
    "ignoreTrailingWhiteSpace": "csv: whether values lose trailing white space.",
    "nullValue": "csv: text of a null.",
    "emptyValue": "csv: text of an empty string.",
    "encoding": "csv, json and text: character set.",
    "lineSep": "csv, json and text: line separator.",
    "dateFormat": "csv and json: pattern of dates.",
    "timestampFormat": "csv and json: pattern of timestamps.",
    "timestampNTZFormat": "csv and json: pattern of timestamps without time zone.",
    "timeZone": "csv and json: zone of timestamps; the session's by default.",
    "locale": "csv and json: language of dates and timestamps, such as en-US.",
    "ignoreNullFields": "json: whether to leave null fields out.",
}
"""Options of ``format("files")``; all but the first four are passed to Spark's writer."""
WRITERS = tuple(name for name in FILE_OPTIONS if name not in {"path", "fileFormat", "retention", "progressInterval"})
"""The options of files that are passed to Spark's writer."""

CONSOLE_OPTIONS: Mapping[str, str] = {
    "numRows": "Number of rows to print of each epoch (20).",
    "truncate": "Whether to truncate long values (true).",
}
"""Options of ``format("console")``."""


def _files(target: Target) -> Sink:
    options, named = target.options, target.file_format
    path = options.get("path")
    if path is None:
        message = f'start: format("{named or FILES.name}") needs a directory: start("…") or option("path", "…").'
        raise AnalysisError(message)
    file_format = options.choice("fileFormat", FORMATS, named or "parquet")
    if named not in {None, file_format}:
        message = f'start: format("{named}") contradicts fileFormat="{file_format}". Leave one out.'
        raise AnalysisError(message)
    at = partial(directory_at, option="path", session=lambda: target.session)
    return FilesSink(
        at(path),
        file_format,
        target.partition_by,
        options.among(WRITERS),
        retention=options.age("retention"),
        clock=target.clock,
        at=at,
        pace=Pace.of(options),
    )


def _table(target: Target) -> Sink:
    options = target.options
    return table_sink(
        target.table,
        target.session,
        target.file_format or options.get("fileFormat"),
        target.partition_by,
        options.among(WRITERS),
        options.get("path"),
        retention=options.age("retention"),
        clock=target.clock,
        pace=Pace.of(options),
    )


def _console(target: Target) -> Sink:
    options = target.options
    return ConsoleSink(options.number("numRows", default=20), truncate=options.flag("truncate", default=True))


def _foreach_batch(target: Target) -> Sink:
    return ForeachBatchSink(target.function, complete=target.complete)


def _memory(target: Target) -> Sink:
    return MemorySink(target.query, target.session, complete=target.complete)


FILES = SinkFormat("files", _files, FILE_OPTIONS, has_directories=True, only_adds=always)
SCRATCH = SinkFormat("files", _files, FILE_OPTIONS)
"""Files for results of any mode, whose epochs someone compares: rows that replace earlier ones stand beside these."""
TABLE = SinkFormat("table", _table, FILE_OPTIONS, method="toTable", has_directories=True, only_adds=always)
MEMORY = SinkFormat("memory", _memory, is_durable=False)
CONSOLE = SinkFormat("console", _console, CONSOLE_OPTIONS, is_durable=False)
FOREACH = SinkFormat("foreach", lambda target: ForeachSink(target.function), is_durable=False, method="foreach")
FOREACH_BATCH = SinkFormat("foreachBatch", _foreach_batch, is_durable=False, method="foreachBatch")
NOOP = SinkFormat("noop", lambda _: NoopSink(), is_durable=False)
SINKS = (FILES, TABLE, MEMORY, CONSOLE, FOREACH, FOREACH_BATCH, NOOP)
