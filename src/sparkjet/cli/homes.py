"""Homes of queries, as arguments of commands name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory


def home_at(location: str, argument: str, settings: Sequence[str]) -> Directory:
    """The home of a query, named as in its option ``checkpointLocation``, or by its place in a grid.

    Raises:
        AnalysisError: The location cannot be used; the message names the argument.
    """
    return directory_at(location, argument, lambda: session(settings))


def session(settings: Sequence[str]) -> SparkSession:
    """A session for the file systems that only Hadoop reads; a local checkpoint needs none.

    Raises:
        AnalysisError: A setting is not NAME=VALUE.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - starts a JVM, which most calls do without

    builder = SparkSession.builder.master("local[1]").appName("sparkjet").config("spark.ui.enabled", "false")
    for setting in settings:
        name, found, value = setting.partition("=")
        if not found:
            raise AnalysisError(f'--conf: "{setting}" is not NAME=VALUE, as in --conf spark.hadoop.fs.s3a.endpoint=….')
        builder = builder.config(name, value)
    return builder.getOrCreate()
