"""The sinks by the name of their format, and those of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.jdbc.settings import JdbcSettings
from sparkjet.connectors.jdbc.sink import JdbcSink
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import SINK_OPTIONS, Options, file_writer_options, parquet_writer_options, upsert_keys
from sparkjet.sinks.commit_every import CommitEvery
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.file_formats import FORMATS
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.foreach import ForeachSink
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.noop import NoopSink
from sparkjet.sinks.protocol import Guarantee
from sparkjet.sinks.table import table_sink
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.clock import Clock
    from sparkjet.sinks.protocol import Sink

_SINK_PARTS = ("guarantee", "check", "prepare", "commit", "published_after", "abort_orphans")


@dataclass(frozen=True)
class SinkFormat:
    """Where an output goes.

    Attributes:
        name: Of the format; of the class where the sink is the user's.
        own: A sink of the user's.
        function: Of ``foreach`` and ``foreachBatch``.
        file_format: Of the files, where the format named it.
        table: Of Spark's catalog.
    """

    name: str
    own: Sink | None = None
    function: Any = None
    file_format: str | None = None
    table: str = ""

    @property
    def key_option(self) -> str:
        """The option that names the columns by which rows replace older ones."""
        return "keys" if self.name == "grid-map" else "keyColumns"

    @property
    def is_durable(self) -> bool:
        """Whether the output outlives the session."""
        return self.own is not None or self.name in {
            "artemis",
            "delta",
            "files",
            "grid-journal",
            "grid-map",
            "iceberg",
            "jdbc",
            "kafka",
            "postgres",
            "rabbitmq",
            "table",
        }

    def create(
        self,
        options: Options,
        *,
        partition_by: Sequence[str],
        table: str,
        session: SparkSession,
        clock: Clock,
        complete: bool = False,
    ) -> Sink:
        """The sink, with its options; the files sink takes ``partition_by`` and the clock, the memory sink ``table``.

        ``complete`` says that the rows of an epoch are all there are, even if there are none.

        Raises:
            AnalysisError: An option is missing or wrong, or the sink's extra is not installed.
        """
        if self.own is not None:
            return self.own
        simple: Mapping[str, Callable[[], Sink]] = {
            "artemis": lambda: _artemis(options),
            "console": lambda: _console(options),
            "delta": lambda: _delta(options, self.table, partition_by, session),
            "foreach": lambda: ForeachSink(self.function),
            "foreachBatch": lambda: ForeachBatchSink(self.function, complete=complete),
            "grid-journal": lambda: _grid_journal(options, session, clock),
            "grid-map": lambda: _grid_map(options, session, clock),
            "iceberg": lambda: _iceberg(options, self.table, partition_by, session),
            "jdbc": lambda: JdbcSink(JdbcSettings.of(options), session),
            "kafka": lambda: _kafka(options),
            "memory": lambda: MemorySink(table, session, complete=complete),
            "noop": NoopSink,
            "postgres": lambda: _postgres(options),
            "rabbitmq": lambda: _rabbitmq(options),
            "table": lambda: self._table(options, partition_by, session, clock),
        }
        return simple[self.name]() if self.name in simple else self._files(options, partition_by, session, clock)

    def _table(self, options: Options, partition_by: Sequence[str], session: SparkSession, clock: Clock) -> Sink:
        return table_sink(
            self.table,
            session,
            self.file_format or options.get("fileFormat"),
            partition_by,
            file_writer_options(options),
            options.get("path"),
            retention=options.age("retention"),
            clock=clock,
        )

    def _files(self, options: Options, partition_by: Sequence[str], session: SparkSession, clock: Clock) -> Sink:
        path = options.get("path")
        if path is None:
            shown = self.file_format or self.name
            message = f'start: format("{shown}") needs a directory: start("…") or option("path", "…").'
            raise AnalysisError(message)
        file_format = options.choice("fileFormat", FORMATS, self.file_format or "parquet")
        if self.file_format not in {None, file_format}:
            message = f'start: format("{self.file_format}") contradicts fileFormat="{file_format}". Leave one out.'
            raise AnalysisError(message)
        at = partial(directory_at, option="path", session=lambda: session)
        return FilesSink(
            at(path),
            file_format,
            tuple(partition_by),
            file_writer_options(options),
            retention=options.age("retention"),
            clock=clock,
            at=at,
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
    if source.lower() in FORMATS:
        return SinkFormat("files", file_format=source.lower())
    # In any case, as Spark finds its own.
    name = next((each for each in SINK_OPTIONS if each.lower() == source.lower()), None)
    if name == "table":
        message = "format: give the name of the table to toTable(…)."
        raise AnalysisError(message)
    if name in {"foreach", "foreachBatch"}:
        message = f'format: give the function to {name}(…) instead of format("{name}").'
        raise AnalysisError(message)
    if name is None:
        message = (
            f'format: there is no sink "{source}"; {nearest(source, [*SINK_OPTIONS, *FORMATS])} Write to other data '
            "sources of Spark's in foreachBatch(…)."
        )
        raise AnalysisError(message)
    return SinkFormat(name)


def _delta(options: Options, table: str, partition_by: Sequence[str], session: SparkSession) -> Sink:
    path, named = options.get("path"), None
    if path is None and not table:
        message = (
            'start: format("delta") needs a table: start("…") or option("path", "…") for its directory, or '
            'toTable("db.events") for its name in the catalog.'
        )
        raise AnalysisError(message)
    with _extra("delta"):
        from sparkjet.connectors.delta.named import named_table  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.delta.sink import DeltaSink  # noqa: PLC0415 - as above
    if table:
        named = named_table(table, session, path)
    place, option = (path or "", "path") if named is None else (named.location, "toTable")
    at = partial(directory_at, option=option, session=lambda: session)
    return DeltaSink(
        at(place),
        session,
        tuple(partition_by),
        parquet_writer_options(options),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        named=named,
        merge_schema=options.flag("mergeSchema"),
    )


def _iceberg(options: Options, table: str, partition_by: Sequence[str], session: SparkSession) -> Sink:
    path = options.get("path")
    if (path is None) == (not table):
        message = (
            'start: format("iceberg") needs one table: start("…") or option("path", "…") for its directory, or '
            'toTable("lake.db.events") for its name in a catalog.'
        )
        raise AnalysisError(message)
    with _extra("iceberg"):
        from sparkjet.connectors.iceberg.library import CatalogTable, PathTable, table_at  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.iceberg.sink import IcebergSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.iceberg.version import MAIN  # noqa: PLC0415 - as above
    by_name = CatalogTable(session, table)
    found = by_name if path is None else PathTable(session, directory_at(path, "path", lambda: session))
    option, at = "toTable" if path is None else "path", partial(table_at, session=session)
    return IcebergSink(
        found,
        session,
        tuple(partition_by),
        parquet_writer_options(options),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        branch=options.get("branch") or MAIN,
        merge_schema=options.flag("mergeSchema"),
    )


def _console(options: Options) -> Sink:
    return ConsoleSink(options.number("numRows", default=20), truncate=options.flag("truncate", default=True))


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
        from sparkjet.connectors.postgres.settings import PostgresSettings  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.postgres.sink import PostgresSink  # noqa: PLC0415 - as above
    return PostgresSink(PostgresSettings.of(options))


def _grid_map(options: Options, session: SparkSession, clock: Clock) -> Sink:
    with _extra("grid"):
        from sparkjet.connectors.grid.map_journal import grid_map_sink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.grid.map_sink_settings import GridMapSettings  # noqa: PLC0415 - as above
    return grid_map_sink(GridMapSettings.of(options), session, clock)


def _grid_journal(options: Options, session: SparkSession, clock: Clock) -> Sink:
    with _extra("grid"):
        from sparkjet.connectors.grid.journal_sink import grid_journal_sink  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.grid.journal_sink_settings import GridJournalSettings  # noqa: PLC0415 - as above
    return grid_journal_sink(GridJournalSettings.of(options), session, clock)


def _kafka(options: Options) -> Sink:
    with _extra("kafka"):
        from sparkjet.connectors.kafka.producer_settings import KafkaSettings, guarantee_of  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.sink import KafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged import StagedKafkaSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.kafka.staged_settings import StagedSettings  # noqa: PLC0415 - as above
    # Without transactions there is nothing to commit.
    default = "staged" if guarantee_of(options) is Guarantee.EXACTLY_ONCE else "prepared"
    if options.choice("commit", ("staged", "prepared"), default) == "staged":
        return StagedKafkaSink(StagedSettings.of(options))
    return KafkaSink(KafkaSettings.of(options))


def _rabbitmq(options: Options) -> Sink:
    with _extra("rabbitmq"):
        from sparkjet.connectors.rabbitmq.sink import RabbitSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings  # noqa: PLC0415 - the extra is optional
    return RabbitSink(RabbitSinkSettings.of(options))


def _artemis(options: Options) -> Sink:
    with _extra("artemis"):
        from sparkjet.connectors.artemis.sink import ArtemisSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings  # noqa: PLC0415 - the extra is optional
    return ArtemisSink(ArtemisSinkSettings.of(options))
