"""Spark's list of a directory goes on: its readers see each row once, wherever a commit is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.errors import AnalysisError, CopiedHomeError, StorageError
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.spark_list import LIST, SparkList
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, transaction
from tests.in_plan import in_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Handle


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


class Death:
    """Comes with the call of this number."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def files(number: int) -> dict[str, int]:
    return {f"a b={number}/part-{number}.parquet": 9}


def test_names_that_spark_has_deleted_tell_the_same_interval(tmp_path: Path) -> None:
    """Until a list is its own, one compaction tells the interval; then the newest two."""
    spark_list = SparkList(PosixDirectory(tmp_path))
    (tmp_path / LIST).mkdir()
    (tmp_path / LIST / "1.compact").write_text("v1")
    for number in range(2, 10):
        SparkList(PosixDirectory(tmp_path)).add(files(number), number, 10)
        spark_list.add(files(number), 0, 10)
    assert {path.name for path in (tmp_path / LIST).iterdir()} == {"7.compact", "8", "9.compact"}
    assert sorted(spark_list.files()) == sorted(name for number in range(2, 10) for name in files(number))


def test_an_entry_that_is_put_late_is_not_read(tmp_path: Path) -> None:
    """Of a driver that has slept since it looked, until its number was merged."""
    spark_list = SparkList(PosixDirectory(tmp_path))
    (tmp_path / LIST).mkdir()
    for number in range(9):
        spark_list.add(files(number), 0, 3)
    assert {path.name for path in (tmp_path / LIST).iterdir()} == {"5.compact", "6", "7", "8.compact"}
    (tmp_path / LIST / "4").write_text((tmp_path / LIST / "6").read_text())
    (tmp_path / LIST / "2.compact").write_text((tmp_path / LIST / "6").read_text())
    assert len(spark_list.files()) == 9
    spark_list.add(files(9), 0, 3)
    assert "9" in {path.name for path in (tmp_path / LIST).iterdir()}


def test_what_is_older_than_the_retention_leaves_with_a_compaction(tmp_path: Path) -> None:
    spark_list = SparkList(PosixDirectory(tmp_path))
    (tmp_path / LIST).mkdir()
    for number in range(3):
        spark_list.add(files(number), number * 1_000_000, 3, 1_500_000)
    assert spark_list.files() == [*files(1), *files(2)]


def test_what_is_added_again_by_the_same_object_changes_nothing(tmp_path: Path) -> None:
    """As a commit that failed behind the list is tried again by its own driver."""
    spark_list = SparkList(PosixDirectory(tmp_path))
    (tmp_path / LIST).mkdir()
    for number in (0, 0, 1, 1):
        spark_list.add(files(number), 0, 2)
    assert spark_list.files() == [*files(0), *files(1)]


def test_a_batch_that_is_closed_is_not_sparks(tmp_path: Path) -> None:
    spark_list = SparkList(PosixDirectory(tmp_path))
    (tmp_path / LIST).mkdir()
    spark_list.add(files(0), 0, 10)
    assert [spark_list.close(number, 2) for number in (0, 1, 1)] == [False, True, True]
    assert spark_list.files() == [*files(0)]


@pytest.mark.spark
def test_its_readers_see_each_row_once_wherever_a_commit_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    out, count = tmp_path / "out", 0
    (out / LIST).mkdir(parents=True)
    for number in range(5):
        (out / LIST / f"{number}").write_text("v1")

    def begun() -> FilesSink:
        sink = FilesSink(out)
        sink.adopt(spark)
        sink.check(in_plan(spark, [], "n int").schema)
        return sink

    def seen() -> list[int]:
        return sorted(row.n for row in spark.read.schema("n int").parquet(str(out)).collect())

    handles: list[Handle] = []
    before: list[FilesSink] = []
    # The interval of the list is 10: with the fifth, it is merged.
    for death in (0, 1, 2, 0, 1, 0):
        handle = begun().prepare(in_plan(spark, [(count,)], "n int"), transaction(count + 1, run=RUN))
        assert handle is not None
        handles.append(handle)
        count += 1
        killed = begun()
        before.append(killed)
        try:
            killed.commit(handle, Death(death))
        except Killed:
            assert seen() in [[*range(count - 1)], [*range(count)]]
        begun().commit(handle, lambda: None)
        assert seen() == [*range(count)]
        # A driver that was taken over commits what it has decided.
        for each in before:
            each.commit(handle, lambda: None)
        assert seen() == [*range(count)]
    assert (out / LIST / "9.compact").exists()
    with pytest.raises(AnalysisError, match="was written by Spark's own streaming"):
        FilesSink(out).check(in_plan(spark, [], "n int").schema)
    # Without the list, which a user has removed, all files count: an entry alone would hide them.
    late = begun().prepare(in_plan(spark, [(count,)], "n int"), transaction(count + 1, run=RUN))
    assert late is not None
    shutil.rmtree(out / LIST)
    FilesSink(out).commit(late, lambda: None)
    assert seen() == [*range(count + 1)]
    assert not (out / LIST).exists()


@pytest.mark.spark
@pytest.mark.parametrize("at", range(3))
def test_of_two_copies_of_a_home_the_list_has_the_files_of_one(spark: SparkSession, tmp_path: Path, at: int) -> None:
    """Whenever the other one publishes the epoch; its own files are there, as readers fail without them."""
    out = tmp_path / "out"
    (out / LIST).mkdir(parents=True)
    (out / LIST / "0").write_text("v1")

    def begun(run: str) -> tuple[FilesSink, Handle]:
        sink = FilesSink(out)
        sink.adopt(spark)
        handle = sink.prepare(in_plan(spark, [(1,)], "n int"), transaction(1, run=run))
        assert handle is not None
        return sink, handle

    (sink, handle), (other, of_other) = begun(RUN), begun("the-copy")
    calls, refused = iter(range(9)), []

    def commit(sink: FilesSink, handle: Handle, between: Callable[[], None]) -> None:
        try:
            sink.commit(handle, between)
        except CopiedHomeError:
            refused.append(sink)

    commit(sink, handle, lambda: commit(other, of_other, lambda: None) if next(calls) == at else None)
    assert refused == [sink if at == 0 else other]
    assert [row.n for row in spark.read.schema("n int").parquet(str(out)).collect()] == [1]
    assert len(SparkList(PosixDirectory(out)).files()) == 1


def test_a_list_of_another_place_is_not_read_as_files_of_this_one(tmp_path: Path) -> None:
    (tmp_path / LIST).mkdir()
    (tmp_path / LIST / "0").write_text('v1\n{"path":"file:/elsewhere/part-0.parquet"}')
    with pytest.raises(StorageError, match=r"names file:/elsewhere/part-0\.parquet, which is not below"):
        SparkList(PosixDirectory(tmp_path)).files()
