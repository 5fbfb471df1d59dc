"""Reading the output of the file sink, in whole epochs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.spark_list import LIST, SparkList
from sparkjet.sinks.united_rows import united
from sparkjet.storage.file_reader import read
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.sinks.manifest import ManifestEntry
    from sparkjet.storage.directory import Directory


def read_files(path: str | Path, schema: StructType | str | None = None) -> DataFrame:
    """Read a directory written by ``format("files")``, wherever it is: only epochs that are completely published.

    A plain ``spark.read`` sees each file as soon as it is renamed into place; this reads the manifest instead.
    Needs an active Spark session; the files are listed once, when this is called.

    Each epoch is read with the format, options, schema and partition columns that it was written with, and the columns
    of all are united by name, those of the newest epoch first: a column that an epoch does not have is null there. A
    type that has changed becomes the one that Spark's ``UNION`` would widen both to, or ``string`` if one of them is.

    In a directory that was taken over from Spark's file sink (``adopt``), those that its list names are read as well.

    Args:
        path: The directory.
        schema: The columns to read, with the types to cast them to; all of them by default.

    Raises:
        AnalysisError: If no query has written there, it cannot be read, or a type has changed to one that does not go
            with it, which only ``schema`` can settle. Or the session belongs to Spark Connect.
    """
    session = SparkSession.active()
    refuse_connect("read_files", session)
    return read_epochs(session, directory_at(str(path), "read_files", lambda: session), schema)


def read_epochs(
    session: SparkSession,
    directory: Directory,
    schema: StructType | str | None = None,
    *,
    of: tuple[str, str] | None = None,
    until: int | None = None,
) -> DataFrame:
    """The same of one query's output, and of its epochs up to one; None for all."""
    try:
        manifests = [each for each in Manifest.all_of(directory) if of in {None, (each.query, each.sink)}]
        entries = [entry for manifest in manifests for entry in manifest.entries()]
        if of is None and entries and directory.exists(LIST):
            # Of before the directory was taken over: by the same query, as far as its readers know.
            own = {file for entry in entries for file in entry.files}
            before = [file for file in SparkList(directory).files() if file not in own]
            entries.append(msgspec.structs.replace(entries[0], epoch=-1, committed=None, files=before))
    except OSError as error:
        message = f'read_files: "{directory}" cannot be read: {error.strerror or error}'
        raise AnalysisError(message) from error
    entries = [entry for entry in entries if until is None or entry.epoch <= until]
    if not entries:
        message = f"read_files: {directory} has no manifest: no sparkjet query has published an epoch there."
        raise AnalysisError(message)
    groups: dict[tuple[bytes, tuple[str, ...]], tuple[ManifestEntry, list[str]]] = {}
    # Epochs of different queries do not compare.
    for entry in sorted(entries, key=lambda each: (each.committed or 0, each.epoch), reverse=True):
        settings = msgspec.json.encode((entry.format, entry.schema, sorted(entry.options.items())))
        for file in entry.files:
            groups.setdefault((settings, _partition_columns(file)), (entry, []))[1].append(file)
    try:
        frames = [_read(session, directory, *group) for group in groups.values()]
    except FileNotFoundError as error:
        message = (
            f"read_files: {error.filename} is missing, which the manifest of {directory} names. Restore the file. With "
            "the option retention, old epochs leave the manifest before their files are deleted."
        )
        raise AnalysisError(message) from error
    wanted = session.createDataFrame([], schema).schema if schema else None
    if not frames:
        # All that was published has told the watermark.
        return session.createDataFrame([], wanted or StructType.fromJson(entries[-1].schema))
    return united(frames, wanted, f"read_files: {directory}")


_READING = {"csv": {"multiLine": "true"}}
"""What readers must be told that writers need not: a line break within a value ends no row."""


def _read(session: SparkSession, directory: Directory, entry: ManifestEntry, files: list[str]) -> DataFrame:
    return read(
        session,
        directory,
        files,
        file_format=entry.format,
        options={**_READING.get(entry.format, {}), **entry.options},
        schema=StructType.fromJson(entry.schema),
        read_back=False,
    )


def _partition_columns(file: str) -> tuple[str, ...]:
    """The names of the columns that are directories, as a file's name has them."""
    return tuple(level.partition("=")[0] for level in file.split("/")[:-1])
