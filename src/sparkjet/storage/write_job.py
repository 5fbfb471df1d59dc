"""Write jobs: Spark's job that writes rows as files, called below ``DataFrameWriter``, with its tasks' reports."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.java_gateway import ensure_callback_server_started

from sparkjet.java import as_map, as_seq, end_callback, has_member, java_class, nothing, scala_context, static_method
from sparkjet.spark_line import LINE
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATASOURCES = "org.apache.spark.sql.execution.datasources"
_EXECUTION = "org.apache.spark.sql.execution.SQLExecution"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_LOG = f"{_STREAMING}.sinks.FileStreamSinkLog" if LINE >= (4, 1) else f"{_STREAMING}.FileStreamSinkLog"
FORMATS = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
}


@dataclass(frozen=True)
class WriteStatistics:
    """Numbers of rows and files written by the task attempts that count."""

    rows: int
    files: int


@dataclass(frozen=True)
class WriteJob:
    """A job that writes the rows of a DataFrame into a directory; on the driver.

    ``DataFrameWriter`` would analyze, optimize and plan a command around a plan that is already planned, and not report
    what was written. An observation of the rows would report it, but takes as long as writing a few of them.

    Attributes:
        rows: The rows.
        uri: The directory.
        format: Spark's name for it.
        options: Options of the format.
        partition_by: Columns that become directories.
        settings: The session whose settings apply to the files; the rows' session if there is none.
        buckets: Scala ``Option`` with the ``BucketSpec`` of the table that the files are for; None if there is none.
    """

    rows: DataFrame
    uri: str
    format: str
    options: Mapping[str, str]
    partition_by: Sequence[str]
    settings: SparkSession | None = field(default=None, kw_only=True)
    buckets: Any = field(default=None, kw_only=True)

    def renaming(self, settings: Mapping[str, str]) -> WriteStatistics:
        """Write, each task attempt below its own directory, from where a rename gives its files their names."""
        committer = java_class(self.session, f"{DATASOURCES}.SQLHadoopMapReduceCommitProtocol")
        configuration = _own_settings(self.session, tuple({**self.options, **settings}.items()))
        return self._run(committer(str(uuid.uuid4()), self.uri, False), configuration)

    def listing(self) -> tuple[WriteStatistics, dict[str, int]]:
        """Write, each task attempt under its own names; also returns the URIs and sizes of the files that count.

        Their paths are encoded as in Hadoop.
        """
        session = self.session
        version = static_method(session, f"{_LOG}.VERSION")()
        with tempfile.TemporaryDirectory(prefix="sparkjet-written-") as local:
            # Not beside the files, as Spark has it: that would be four of five requests of a small epoch.
            log = java_class(session, _LOG)(version, session._jsparkSession, Path(local).as_uri(), nothing(session))
            committer = java_class(session, f"{_STREAMING}.ManifestFileCommitProtocol")("0", self.uri)
            committer.setupManifestOptions(log, 0)
            state = session._jsparkSession.sessionState()
            statistics = self._run(committer, state.newHadoopConfWithOptions(as_map(session, self.options.items())))
            files = log.get(0).get()
            return statistics, {file.path(): file.size() for file in files}

    @property
    def session(self) -> SparkSession:
        """The session whose settings apply to the files."""
        return self.settings if self.settings is not None else self.rows.sparkSession

    def _run(self, committer: Any, configuration: Any) -> WriteStatistics:
        session = self.session
        execution = self.rows._jdf.queryExecution()
        output = execution.analyzed().output()
        columns = [output.apply(number) for number in range(output.size() if self.partition_by else 0)]
        named = {column.name(): column for column in columns}
        by = as_seq(session, [named[name] for name in self.partition_by])
        trackers = java_class(session, f"{DATASOURCES}.BasicWriteJobStatsTracker")
        metrics = static_method(session, f"{DATASOURCES}.BasicWriteJobStatsTracker.metrics")()
        serializable = java_class(session, "org.apache.spark.util.SerializableConfiguration")
        destination = java_class(session, f"{DATASOURCES}.FileFormatWriter$OutputSpec")
        further = [_FURTHER] if has_member(session.sparkContext, f"{_FURTHER}(0)") else []
        arguments = (
            session._jsparkSession,
            execution.executedPlan(),
            java_class(session, f"{DATASOURCES}.{FORMATS[self.format]}")(),
            committer,
            destination(self.uri, as_map(session, []), output),
            configuration,
            by,
            nothing(session) if self.buckets is None else self.buckets,
            as_seq(session, [trackers(serializable(configuration), metrics)]),
            as_map(session, self.options.items()),
            0,
            *(static_method(session, each)() for each in further),
        )
        write = static_method(session, f"{DATASOURCES}.FileFormatWriter.write")
        _as_execution(session, execution, lambda: write(*arguments), self.settings)
        return WriteStatistics(metrics.apply("numOutputRows").value(), metrics.apply("numFiles").value())


_FURTHER = f"{DATASOURCES}.FileFormatWriter.write$default$12"
"""The default of an argument that only some releases have, even within one line: 4.0.5, but not 4.0.1."""
_CONFIGURATIONS: dict[tuple[Any, ...], Any] = {}
_MOST = 32
"""Maximum number of kept configurations."""
_CONFIGURATION = "org.apache.hadoop.conf.Configuration"
_STATES = "org.apache.spark.sql.internal.SessionState"


def _own_settings(session: SparkSession, further: tuple[tuple[str, str], ...]) -> Any:
    """Hadoop's configuration of a session with further settings, without Hadoop's defaults; made once.

    Spark sends the configuration to each task, twice. With the 1,100 defaults, whose sources are each compressed
    separately, this takes longer than writing the rows of a small epoch. Code that asks for a default knows it.
    """
    gateway = session.sparkContext._gateway
    # Not the session: each batch has another Python object for it.
    key = gateway, session._jsparkSession.sessionUUID(), further
    if key not in _CONFIGURATIONS:
        if len(_CONFIGURATIONS) == _MOST:
            _CONFIGURATIONS.clear()
        _CONFIGURATIONS[key] = _without_defaults(session, further)
    return _CONFIGURATIONS[key]


def _without_defaults(session: SparkSession, further: tuple[tuple[str, str], ...]) -> Any:
    common = scala_context(session).hadoopConfiguration()
    shown = java_class(session, "java.io.StringWriter")()
    static_method(session, f"{_CONFIGURATION}.dumpConfiguration")(common, shown)
    own = java_class(session, _CONFIGURATION)(False)
    for each in json.loads(shown.toString())["properties"]:
        if not each["resource"].endswith("-default.xml"):
            # What is shown is redacted.
            own.set(each["key"], common.getRaw(each["key"]))
    # In one call, as Spark does it: to set each setting of a session here took a tenth of a query's start.
    states = getattr(java_class(session, f"{_STATES}$"), "MODULE$")
    found = states.newHadoopConf(own, session._jsparkSession.sessionState().conf())
    for name, value in further:
        found.set(name, value)
    return found


def _as_execution(
    session: SparkSession, execution: Any, call: Callable[[], object], settings: SparkSession | None
) -> None:
    """Call something as Spark runs a query: otherwise its jobs would lack the session's settings on the executors."""
    ensure_callback_server_started(session.sparkContext._gateway)
    body = _Body(session, call)
    name = static_method(session, "scala.Option.apply")("save")
    outer = body
    if settings is not None:
        propagated, jsettings = static_method(session, f"{_EXECUTION}.withSQLConfPropagated"), settings._jsparkSession
        outer = _Body(session, lambda: propagated(jsettings, body))
    try:
        static_method(session, f"{_EXECUTION}.withNewExecutionId")(execution, name, outer)
    except JAVA_ERRORS:
        if body.failure is not None:
            raise body.failure from None
        raise


class _Body:
    """A function without arguments, for the JVM to call."""

    def __init__(self, session: SparkSession, call: Callable[[], object]) -> None:
        self._session, self._call = session, call
        self.failure: Exception | None = None

    def apply(self) -> None:
        try:
            self._call()
        except Exception as error:
            # Java passes on only its text.
            self.failure = error
            raise
        finally:
            end_callback(self._session)

    class Java:
        implements = ("scala.Function0",)
