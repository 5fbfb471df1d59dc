"""Backups: a second home that follows the first, from which the query goes on when that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, feed: Feed, place: Path, **options: Any) -> None:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
    writer = counts.writeStream.format("files").option("path", place / "out")
    writer = writer.option("checkpointLocation", place / "home").options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()


def newest(home: Path) -> int | None:
    found = RecordLog(DirectoryStore(PosixDirectory(home / "snapshots"))).newest()
    return None if found is None else found[0]


def test_a_query_goes_on_from_its_backup(spark: SparkSession, tmp_path: Path) -> None:
    feed, backup = Feed(tmp_path / "in"), tmp_path / "backup"
    for time in (1, 2, 11, 12):
        feed.add(*rows([time], k="a"))
    run(spark, feed, tmp_path, snapshotBackup=backup, snapshotBackupEvery=1)
    assert newest(backup) is not None
    shutil.rmtree(tmp_path / "home")
    copy_newest(PosixDirectory(backup), PosixDirectory(tmp_path / "home"))
    feed.add(*rows([31], k="a"))
    run(spark, feed, tmp_path)
    assert sorted(row["count"] for row in sj.read_files(str(tmp_path / "out")).collect()) == [2, 2]


def test_it_comes_every_so_many_epochs(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    for time in (1, 2, 11):
        feed.add(*rows([time], k="a"))
    run(spark, feed, tmp_path, snapshotBackup=tmp_path / "backup", snapshotBackupEvery=4)
    assert newest(tmp_path / "backup") is None
    feed.add(*rows([12], k="a"))


def test_a_backup_that_fails_leaves_the_query_alone_and_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 30], k="a"))
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "snapshots").write_text("in the way")
    run(spark, feed, tmp_path, snapshotBackup=tmp_path / "backup", snapshotBackupEvery=1)
    assert "has not got the newest snapshot" in caplog.text
    assert sj.read_files(str(tmp_path / "out")).count() == 1


def test_how_often_without_where_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1], k="a"))
    with pytest.raises(sj.AnalysisError, match="snapshotBackupEvery needs snapshotBackup"):
        run(spark, feed, tmp_path, snapshotBackupEvery=1)
