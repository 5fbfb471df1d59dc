"""What a sink's tasks raise in the executors, as the user gets it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from sparkjet.errors import SinkError
from sparkjet.sinks.tasks import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PACKAGES = {"a_package_nobody_has": "a-package-nobody-has", "pyarrow": "pyarrow"}


class RefusedError(Exception):
    pass


def passes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def refuses(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        message = "the row is too large. Make it smaller."
        raise RefusedError(message)
    yield from ()


def lacks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    importlib.import_module("a_package_nobody_has")
    yield from batches


def lacks_another(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    importlib.import_module("a_package_of_the_user")
    yield from batches


def test_tasks_run_and_what_they_refuse_is_said_without_a_traceback(spark: SparkSession) -> None:
    rows = spark.range(4, numPartitions=2).selectExpr("string(id) AS id", "id AS rows")
    half = sys.modules[__name__]
    assert [row["rows"] for row in run_tasks(rows, passes, half, RefusedError, PACKAGES)] == [0, 1, 2, 3]
    with pytest.raises(SinkError) as refused:
        run_tasks(rows, refuses, half, RefusedError, PACKAGES)
    assert str(refused.value) == "the row is too large. Make it smaller."
    with pytest.raises(
        SinkError, match=r"has no a_package_nobody_has\. Install a-package-nobody-has and pyarrow there"
    ):
        run_tasks(rows, lacks, half, RefusedError, PACKAGES)


def test_a_package_that_a_function_of_the_user_misses_is_not_taken_for_one_of_ours(spark: SparkSession) -> None:
    with pytest.raises(PythonException, match="a_package_of_the_user"):
        run_tasks(spark.range(1), lacks_another, sys.modules[__name__], RefusedError, PACKAGES)
