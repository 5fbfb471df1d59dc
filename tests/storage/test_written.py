"""Files are relied on only if the driver sees all that tasks have written."""

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
    from pyspark.sql import SparkSession


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
    class Unseen(PosixDirectory):
        """Lacks a file that a task has written, as where an executor has another directory under the same path."""

        def files(self) -> dict[str, int]:
            return {name: size for name, size in super().files().items() if not name.startswith("part-00002-")}

    with pytest.raises(SinkError, match=r"1 of 4 files .*out \(partitions 2; hosts .*same path"):
        write(spark.range(0, 40, 1, 4), FileWriter(Unseen(tmp_path / "out")), SinkError)


def test_rows_that_the_optimizer_knows_to_be_none_are_none(spark: SparkSession, tmp_path: Path) -> None:
    assert write(spark.range(4).where("false"), FileWriter(PosixDirectory(tmp_path / "out")), SinkError).rows == 0


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
    files = [*store.write_delta(name, spark.range(0, 10, 1, 2))]
    read = store.read_delta(spark, Delta(name, files, 10, 0, 1))
    (tmp_path / "snapshots" / "state" / name / files[0]).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", value=True)
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            read.count()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
