"""The sinks by the name of their format, and those of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import SINK_OPTIONS, Options, file_writer_options
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.files import FORMATS, FilesSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.storage.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.clock import Clock
    from sparkjet.sinks.protocol import Sink

_SINK_PARTS = ("guarantee", "check", "prepare", "commit", "abort_orphans")
_SPARK_FORMATS = ("csv", "json", "parquet")


@dataclass(frozen=True)
class SinkFormat:
    """Where an output goes.

    Attributes:
        name: Of the format; of the class where the sink is the user's.
        own: A sink of the user's.
        function: Of ``foreachBatch``.
    """

    name: str
    own: Sink | None = None
    function: Callable[[DataFrame, int], None] | None = None

    @property
    def is_durable(self) -> bool:
        """Whether the output outlives the session."""
        return self.own is not None or self.name in {"files", "kafka", "postgres"}

    def create(
        self, options: Options, *, partition_by: Sequence[str], table: str, session: SparkSession, clock: Clock
    ) -> Sink:
        """The sink, with its options; the files sink takes ``partition_by`` and the clock, the memory sink ``table``.

        Raises:
            AnalysisError: An option is missing or wrong, or the sink's extra is not installed.
        """
        if self.own is not None:
            return self.own
        if self.function is not None:
            return ForeachBatchSink(self.function)
        if self.name == "console":
            return ConsoleSink(options.number("numRows", default=20), truncate=options.flag("truncate", default=True))
        if self.name == "memory":
            return MemorySink(table, session)
        if self.name in _EXTRAS:
            return _EXTRAS[self.name](options)
        path = options.get("path")
        if path is None:
            message = 'start: format("files") needs a directory: start("…") or option("path", "…").'
            raise AnalysisError(message)
        return FilesSink(
            local_path(path, "path"),
            options.choice("fileFormat", FORMATS, "parquet"),
            tuple(partition_by),
            file_writer_options(options),
            retention=options.age("retention"),
            clock=clock,
        )


def sink_format(source: str | Sink) -> SinkFormat:
    """The format that a user has named, or a sink of the user's.

    Raises:
        AnalysisError: There is no such format, or the object is not a sink.
    """
    if not isinstance(source, str):
        lacking = [part for part in _SINK_PARTS if not hasattr(source, part)]
        if lacking:
            message = (
                f"format: a {type(source).__name__} is not a sink, it has no {lacking[0]!r}. Give the name of a "
                f"format, or an object that has {', '.join(_SINK_PARTS)}: see sparkjet.sinks.Sink."
            )
            raise AnalysisError(message)
        return SinkFormat(type(source).__name__, own=source)
    if source in _SPARK_FORMATS:
        message = f'format: use format("files").option("fileFormat", "{source}") for transactional {source} files.'
        raise AnalysisError(message)
    if source == "foreachBatch":
        message = 'format: give the function to foreachBatch(…) instead of format("foreachBatch").'
        raise AnalysisError(message)
    if source not in SINK_OPTIONS:
        message = f'format: there is no sink "{source}"; {nearest(source, SINK_OPTIONS)}'
        raise AnalysisError(message)
    return SinkFormat(source)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Name the extra of sparkjet that installs what an import misses."""
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
"""Sinks whose libraries are optional."""
