"""Files are relied on only if the driver sees one of every task that had rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import RecoveryError, SinkError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.store import Delta
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_files_are_those_of_every_task_that_had_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 40, 1, 4).selectExpr("id", "id % 3 AS k")
    for name, frame in {
        "plain": rows,
        "one task": rows.coalesce(1),
        "some empty": rows.where("id > 25"),
        "aggregated": rows.groupBy("k").count(),
        "united": rows.union(rows.where("id < 5")),
        "held": rows.localCheckpoint(),
        "none": rows.where("id < 0"),
    }.items():
        found = write(frame, FileWriter(PosixDirectory(tmp_path / name), "json"), SinkError)
        assert found.rows == frame.count(), name
        lines = [len((tmp_path / name / file).read_text().splitlines()) for file in found.files]
        assert sum(lines) == found.rows, name


def test_partitioned_files_are_counted_by_their_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 40, 1, 4).selectExpr("id", "id % 3 AS k")
    writer = FileWriter(PosixDirectory(tmp_path / "out"), "json", {"maxRecordsPerFile": "2"}, ["k"])
    found = write(rows, writer, SinkError)
    assert found.rows == 40
    assert len(found.files) >= 20


def test_a_file_that_the_driver_does_not_see_is_an_error_that_names_task_and_host(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Unseen(FileWriter):
        def _save(self, rows: DataFrame) -> None:
            super()._save(rows)
            next((tmp_path / "out").glob("part-00002-*")).unlink()

    with pytest.raises(SinkError, match=r"1 of 4 tasks .*out \(partitions 2; hosts .*same path"):
        write(spark.range(0, 40, 1, 4), Unseen(PosixDirectory(tmp_path / "out")), SinkError)


def test_what_spark_does_not_report_does_not_count_as_no_rows(spark: SparkSession, tmp_path: Path) -> None:

    class Optimized(FileWriter):
        """The optimizer removes the observation together with the rows."""

        def save(self, rows: DataFrame) -> list[str]:
            return super().save(rows.where("false"))

    with pytest.raises(SinkError, match="did not report how many rows"):
        write(spark.range(4), Optimized(PosixDirectory(tmp_path / "out")), SinkError)


def test_a_delta_that_names_no_file_but_rows_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "snapshots")
    store.open("checkpointLocation")
    delta = Delta("000000-000000001-0-stage-0", [], 5, 0, 1)
    with pytest.raises(RecoveryError, match="5 rows, but names no file"):
        store.read_delta(spark, delta)


def test_a_delta_is_read_whole_whatever_the_session_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "snapshots")
    store.open("checkpointLocation")
    name = "000000-000000001-0-stage-0"
    files = store.write_delta(name, spark.range(0, 10, 1, 2))
    read = store.read_delta(spark, Delta(name, files, 10, 0, 1))
    (tmp_path / "snapshots" / "state" / name / files[0]).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", value=True)
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            read.count()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
