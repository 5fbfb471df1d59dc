"""Reading the output of the file sink, in whole epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sparkjet.errors import AnalysisError
from sparkjet.sinks.manifest import Manifest
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_files(path: str) -> DataFrame:
    """Read a directory written by ``format("files")``, wherever it is: only epochs that are completely published.

    A plain ``spark.read`` sees each file as soon as it is renamed into place; this reads the manifest instead.
    Needs an active Spark session; the files are listed once, when this is called.

    Raises:
        AnalysisError: If no query has written there, or it cannot be read.
    """
    directory = directory_at(path, "read_files", SparkSession.active)
    try:
        entries = [entry for manifest in Manifest.all_of(directory) for entry in manifest.entries()]
    except OSError as error:
        message = f'read_files: "{directory}" cannot be read: {error.strerror or error}'
        raise AnalysisError(message) from error
    if not entries:
        message = f"read_files: {directory} has no manifest: no sparkjet query has published an epoch there."
        raise AnalysisError(message)
    newest = max(entries, key=lambda entry: entry.epoch)
    reader = SparkSession.active().read.format(newest.format).options(**newest.options)
    reader = reader.schema(StructType.fromJson(newest.schema))
    files = [directory.uri(file) for entry in entries for file in entry.files]
    return reader.option("basePath", directory.uri()).load(files)
