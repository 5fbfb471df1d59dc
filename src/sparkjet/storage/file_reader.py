"""Reading rows that a :class:`~sparkjet.storage.file_writer.FileWriter` has written as Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.storage.directory import HoldsRows
from sparkjet.storage.paths import CHECKING
from sparkjet.storage.read_back import for_read_back, in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.directory import Directory


def read(session: SparkSession, directory: Directory, files: Sequence[str]) -> DataFrame:
    """The rows of some files of a directory, whose checksums Spark compares where it has them.

    The session is for what becomes of them: how the files are read does not depend on its settings.
    """
    if isinstance(directory, HoldsRows):
        return directory.read_rows(session, files)
    found = for_read_back(session).read.options(**CHECKING).parquet(*map(directory.uri, files))
    return in_session(session, found)
