"""The transactional file sink: written by Spark's writers, published by renaming."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructType

from sparkjet.errors import AnalysisError, LostTransactionError, SinkError
from sparkjet.paths import WRITING, check_put_if_absent, spark_uri, sync_directory, sync_file
from sparkjet.sinks.manifest import HIDDEN, Manifest, ManifestEntry
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("csv", "json", "parquet")


@dataclass
class FilesSink:
    """Files of one format below one directory.

    An epoch's files are written below ``_sparkjet/`` (a name that Spark, like every reader that follows Hadoop's
    convention, does not read), then renamed into place one by one: a plain reader sees whole files only and each
    row once. Readers that want whole epochs use :func:`sparkjet.read_files`.

    Args:
        directory: The output directory.
        file_format: ``parquet``, ``json`` or ``csv``.
        partition_by: Columns that become directories, as in Spark's ``partitionBy``.
        options: Options for Spark's writer, e.g. ``compression`` or ``header``.
        option: Name of the user's option, for messages.
    """

    directory: Path
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        missing = [name for name in self.partition_by if name not in schema.fieldNames()]
        if missing:
            message = f"partitionBy: no column {missing[0]!r} in the result. Columns: {', '.join(schema.fieldNames())}"
            raise AnalysisError(message)
        if len(self.partition_by) == len(schema.fields):
            message = "partitionBy: at least one column must stay in the files."
            raise AnalysisError(message)
        if self.file_format == "csv":
            nested = [f.name for f in schema.fields if isinstance(f.dataType, StructType | ArrayType | MapType)]
            if nested:
                message = (
                    f"fileFormat: csv cannot hold the nested column {nested[0]!r}. Flatten it first, for a window with "
                    'select("window.start", "window.end", …), or use parquet or json.'
                )
                raise AnalysisError(message)
        check_put_if_absent(self.directory / HIDDEN, self.option, create=False)

    def create(self) -> None:
        """See :meth:`Creating.create`: the directory, which a reader may look into before there is a row."""
        (self.directory / HIDDEN).mkdir(parents=True, exist_ok=True)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        staging = self._staging(transaction.query, transaction.sink) / str(transaction)

        def save(observed: DataFrame) -> None:
            writer = observed.write.mode("errorifexists").format(self.file_format)
            writer = writer.options(**WRITING).options(**self.options)
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.save(spark_uri(staging))

        found = write(rows, staging, save, SinkError)
        if not found.rows:
            shutil.rmtree(staging)
            return None
        files = found.files
        for folder in {(staging / file).parent for file in files} | {staging, staging.parent}:
            sync_directory(folder)
        for file in files:
            sync_file(staging / file)
        names = [_published(transaction, number, file) for number, file in enumerate(files)]
        return {
            "directory": str(self.directory),
            "query": transaction.query,
            "sink": transaction.sink,
            "staging": str(transaction),
            "epoch": transaction.epoch,
            "files": [[file.as_posix(), name.as_posix()] for file, name in zip(files, names, strict=True)],
            "format": self.file_format,
            "schema": rows.schema.jsonValue(),
            "options": dict(self.options),
        }

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        directory = Path(handle["directory"])
        staging = self._staging(handle["query"], handle["sink"]) / handle["staging"]
        manifest = Manifest(directory, handle["query"], handle["sink"])
        if manifest.contains(handle["epoch"]):
            # Checked first: a driver that was taken over in the middle of its commits may come back after a user
            # has removed old output files, and must not call them lost.
            shutil.rmtree(staging, ignore_errors=True)
            return
        folders = {directory}
        for staged, published in handle["files"]:
            target = directory / published
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (staging / staged).rename(target)
            except FileNotFoundError as error:
                if not target.exists() and not manifest.contains(handle["epoch"]):
                    message = (
                        f"Epoch {handle['epoch']} was decided, but {staging / staged} is gone and {target} was never "
                        "published: its rows are lost. Restore the file, or run the query again from its input."
                    )
                    raise LostTransactionError(message) from error
            folders |= {target.parent, target.parent.parent}
            between()
        for folder in folders:
            sync_directory(folder)
        manifest.add(
            ManifestEntry(
                epoch=handle["epoch"],
                files=[published for _, published in handle["files"]],
                format=handle["format"],
                schema=handle["schema"],
                options=handle["options"],
            )
        )
        shutil.rmtree(staging, ignore_errors=True)

    def roll_back_strays(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.roll_back_strays`."""
        decided = {(handle["sink"], handle["staging"]) for handle in keep}
        for staging in (self.directory / HIDDEN / query).glob("*/staging/*"):
            sink = staging.parent.parent.name
            if int(staging.name.partition("-")[0]) < takeover and (sink, staging.name) not in decided:
                shutil.rmtree(staging, ignore_errors=True)

    def _staging(self, query: str, sink: str) -> Path:
        return self.directory / HIDDEN / query / sink / "staging"


def _published(transaction: TransactionId, number: int, staged: Path) -> Path:
    """Final name of a staged file: the same whoever commits, and no other file's."""
    suffix = "".join(staged.suffixes)
    name = f"part-{transaction.epoch:09d}-{number:05d}-{transaction.query[:8]}-{transaction.sink}{suffix}"
    return staged.parent / name
