"""Reading rows that a :class:`~sparkjet.storage.file_writer.FileWriter` has written as Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.storage.directory import HoldsRows
from sparkjet.storage.paths import CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.directory import Directory


def read(session: SparkSession, directory: Directory, files: Sequence[str]) -> DataFrame:
    """The rows of some files of a directory, whose checksums Spark compares where it has them."""
    if isinstance(directory, HoldsRows):
        return directory.read_rows(session, files)
    return session.read.options(**CHECKING).parquet(*map(directory.uri, files))
