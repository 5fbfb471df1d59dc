"""Writing rows as files: by Spark's batch writer on a path, by its streaming file sink in a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.java_gateway import ensure_callback_server_started

from sparkjet.storage.directory import HoldsRows
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS, os_error
from sparkjet.storage.paths import WRITING
from sparkjet.storage.patience import Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.storage.directory import Directory

_FORMATS = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
}
_MANIFEST = "_spark_metadata/0"
"""Where the streaming file sink lists the files of its first batch."""


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of a DataFrame into a new directory, and knows which files there count.

    On a path, one rename gives the files of a task their names. In a store a rename may be a copy, file by file: a task
    attempt that was given up, and goes on later, could replace files of the one that counts, or be seen half-way. There
    each attempt writes under names of its own, and the driver lists those of the attempts that count.

    Attributes:
        directory: The directory, which must not exist.
        format: As Spark calls it.
        options: For Spark's writer.
        partition_by: Columns that become directories.
    """

    directory: Directory
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()

    def save(self, rows: DataFrame) -> list[str]:
        """Write the rows; returns the files of the task attempts that count, relative to the directory.

        What has been written when it fails does not count.
        """
        if isinstance(self.directory, HoldsRows):
            return self.directory.write_rows(rows)
        self._save(rows)
        return self._files()

    def _save(self, rows: DataFrame) -> None:
        if self.directory.path is None:
            self._add_batch(rows)
            return
        writer = rows.write.mode("errorifexists").format(self.format).options(**WRITING).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self.directory.uri())

    def _files(self) -> list[str]:
        if self.directory.path is None:
            _, *entries = self.directory.read(_MANIFEST).decode().splitlines()
            # Of each a URI, whose path Hadoop has encoded.
            uris = (unquote(json.loads(entry)["path"]) for entry in entries)
            return sorted(uri.removeprefix(f"{self.directory.uri()}/") for uri in uris)
        paths = sorted(map(PurePosixPath, self.directory.files()))
        # Late and speculative attempts write below _temporary.
        return [str(path) for path in paths if path.name.startswith("part-") and path.parts[0] != "_temporary"]

    def _add_batch(self, rows: DataFrame) -> None:
        session = rows.sparkSession
        gateway: Any = session.sparkContext._gateway
        ensure_callback_server_started(gateway)
        jvm = gateway.jvm
        sql = jvm.org.apache.spark.sql.execution
        package, _, name = _FORMATS[self.format].partition(".")

        def made() -> Any:
            try:
                return sql.streaming.sinks.FileStreamSink(
                    session._jsparkSession,
                    self.directory.uri(),
                    getattr(getattr(sql.datasources, package), name)(),
                    jvm.PythonUtils.toSeq(list(self.partition_by)),
                    jvm.PythonUtils.toScalaMap(dict(self.options)),
                )
            except JAVA_ERRORS as error:
                raise os_error(gateway, error, self.directory.uri()) from error

        # It looks into the directory; of the job itself, Spark repeats the tasks.
        sink = Patience(has_answered=True).run(made)
        body = _Body(lambda: sink.addBatch(0, rows._jdf))
        try:
            # Its jobs would not have the session's settings on the executors, nor observations an end.
            sql.SQLExecution.withNewExecutionId(rows._jdf.queryExecution(), jvm.scala.Option.apply("save"), body)
        except JAVA_ERRORS:
            if body.failure is not None:
                raise body.failure from None
            raise


class _Body:
    """A function without arguments, for the JVM to call."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.failure: Exception | None = None

    def apply(self) -> None:
        try:
            self._call()
        except Exception as error:
            # What Java hands on is only its text.
            self.failure = error
            raise

    class Java:
        implements = ("scala.Function0",)
