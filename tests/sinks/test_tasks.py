"""Errors of a sink's tasks in the executors, as the user sees them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PythonException

from sparkjet.errors import RefusedRowsError, SinkError
from sparkjet.sinks.attempt import THREAD, is_first, pooled_attempt
from sparkjet.sinks.tasks import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

ROOT = Path(__file__).parents[2]
PACKAGES = {"a_package_nobody_has": "a-package-nobody-has", "pyarrow": "pyarrow"}


class RefusedError(Exception):
    pass


class RefusedRowError(RefusedError):
    pass


def passes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def refuses(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise RefusedError("the row is too large. Make it smaller.")
    yield from ()


def refuses_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise RefusedRowError("no topic.")
    yield from ()


def lacks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    importlib.import_module("a_package_nobody_has")
    yield from batches


def lacks_another(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    importlib.import_module("a_package_of_the_user")
    yield from batches


def test_tasks_run_and_their_refusals_come_without_a_traceback(spark: SparkSession) -> None:
    rows = spark.range(4, numPartitions=2).selectExpr("string(id) AS id", "id AS rows")
    half = sys.modules[__name__]
    assert [row["rows"] for row in run_tasks(rows, passes, [half], RefusedError, PACKAGES)] == [0, 1, 2, 3]
    with pytest.raises(SinkError) as refused:
        run_tasks(rows, refuses, [half], RefusedError, PACKAGES)
    assert str(refused.value) == "[SPARKJET_SINK] the row is too large. Make it smaller."
    with pytest.raises(
        SinkError, match=r"has no a_package_nobody_has\. Install a-package-nobody-has and pyarrow there"
    ):
        run_tasks(rows, lacks, [half], RefusedError, PACKAGES)


def test_a_refusal_of_rows_is_a_refusal_where_rows_are_not_distinguished(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("string(id) AS id", "id AS rows")
    given = rows, refuses_rows, [sys.modules[__name__]], RefusedError, PACKAGES
    with pytest.raises(SinkError, match=r"^\[SPARKJET_SINK\] no topic\.$"):
        run_tasks(*given)
    with pytest.raises(RefusedRowsError, match=r"no topic\.$"):
        run_tasks(*given, of_rows=RefusedRowError)


def test_a_package_that_a_function_of_the_user_misses_is_not_taken_for_one_of_ours(spark: SparkSession) -> None:
    with pytest.raises(PythonException, match="a_package_of_the_user"):
        run_tasks(spark.range(1), lacks_another, [sys.modules[__name__]], RefusedError, PACKAGES)


def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    def write(writer: str, rows: Iterator[pa.RecordBatch]) -> tuple[str, int]:
        found = list(rows)
        assert {tuple(batch.schema.names) for batch in found} == {("id",)}
        return writer, sum(batch.num_rows for batch in found)

    return pooled_attempt(write, batches)


def pooled(rows: DataFrame) -> list[Row]:
    return run_tasks(rows, counts, [sys.modules[__name__]], RefusedError, PACKAGES, pooled=True)


def first(row: Row) -> bool:
    return is_first(row[THREAD], row["task"], row["attempt"])


def test_first_attempts_have_the_same_names_in_each_job_and_tasks_without_rows_answer_too(spark: SparkSession) -> None:
    rows = spark.range(30_000, numPartitions=3).where("id < 20000")
    for _ in range(2):
        answers = pooled(rows)
        assert [row["id"] for row in answers] == ["p00000", "p00001", None]
        assert [row["rows"] for row in answers] == [10_000, 10_000, 0]
        assert all(map(first, answers))


@pytest.mark.crash
# In CI, the names of threads below.
@pytest.mark.long
def test_attempts_of_a_repeated_stage_have_their_own_names(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sinks.repeated_stage", str(tmp_path / "lost")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    driver = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    answers = json.loads(driver.stdout)
    assert sum(row["rows"] for row in answers) == 60_000
    # By Python's own context, each was a first attempt.
    assert {row["attempt"] for row in answers} == {0}
    firsts = [is_first(row["thread"], row["task"], row["attempt"]) for row in answers]
    assert set(firsts) == {True, False}
    for number, (row, first_attempt) in enumerate(zip(answers, firsts, strict=True)):
        assert row["id"] == (f"p{number:05d}" if first_attempt else f"p{number:05d}-{row['task']}")


@pytest.mark.parametrize(
    ("thread", "attempt", "expected"),
    [
        ("Thread[Executor task launch worker for task 3.0 in stage 7.0 (TID 42),5,main]", 0, True),
        ("Thread[Executor task launch worker for task 3.0 in stage 7.1 (TID 42),5,main]", 0, False),
        ("Thread[Executor task launch worker for task 3.1 in stage 7.0 (TID 42),5,main]", 1, False),
        ("Thread[Executor task launch worker for task 3.0 in stage 7.0 (TID 41),5,main]", 0, False),
        ("Thread[stdout writer for python,5,main]", 0, False),
        (None, 0, False),
    ],
)
def test_an_unknown_thread_name_is_not_a_first_attempt(thread: str | None, attempt: int, expected: bool) -> None:
    assert is_first(thread, 42, attempt) is expected
