"""Backups: a second home that follows the first, from which the query goes on when that is lost."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing import StreamDriver
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Homes that are lost or copied: a first run need not prove what becomes of them.
pytestmark = pytest.mark.crash


def run(spark: SparkSession, feed: Feed, place: Path, *, home: Path | None = None, **options: Any) -> sj.StreamingQuery:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
    writer = counts.writeStream.format("files").option("path", place / "out")
    writer = writer.option("checkpointLocation", home or place / "home").options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


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


def test_it_has_a_record_although_the_outbox_is_empty_after_each_epoch(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every sink that has one."""
    feed, out, handed = Feed(tmp_path / "in"), tmp_path / "rows", list[int]()
    out.touch()

    def note(row: Any) -> None:
        with out.open("a") as file:
            file.write(f"{row['v']}\n")

    def note_all(rows: DataFrame, epoch: int) -> None:
        del epoch
        handed.extend(row["v"] for row in rows.collect())

    def go_on(home: Path, *numbers: int) -> sj.StreamingQuery:
        feed.add(*({"t": None, "v": number} for number in numbers))
        numbered = sj.stream(feed.read(spark).select("v"))
        first = numbered.writeStream.foreachBatch(note_all).option("snapshotBackup", tmp_path / "backup")
        query = sj.start(
            first.option("snapshotBackupEvery", 1).trigger(availableNow=True),
            numbered.writeStream.foreach(note),
            numbered.writeStream.format("memory").queryName("backed_up"),
            numbered.writeStream.format("console"),
            checkpointLocation=str(home),
        )
        query.awaitTermination()
        return query

    def delivered() -> list[list[int]]:
        shown = [int(found) for found in re.findall(r"^\|\s*(\d+)\|$", capsys.readouterr().out, re.MULTILINE)]
        memory = [row["v"] for row in spark.table("backed_up").collect()]
        found = [list(handed), list(map(int, out.read_text().split())), memory, shown]
        handed.clear()
        out.write_text("")
        return found

    query = go_on(tmp_path / "home", 1)
    assert query.lastProgress is not None
    assert query.lastProgress["backup"] == {"epoch": 1, "error": None}
    assert delivered() == [[1]] * 4
    shutil.rmtree(tmp_path / "home")
    copy_newest(PosixDirectory(tmp_path / "backup"), PosixDirectory(tmp_path / "home"))
    go_on(tmp_path / "home", 2)
    assert delivered() == [[2]] * 4


def test_rows_that_still_wait_are_copied_too(spark: SparkSession, tmp_path: Path) -> None:
    taken: list[int] = []

    def driver(home: str, *, away: bool) -> StreamDriver:
        def take(rows: DataFrame, epoch: int) -> None:
            if away:
                raise ConnectionError(f"epoch {epoch}: the database is away")
            taken.extend(row["n"] for row in rows.collect())

        sink = ForeachBatchSink(take)
        return StreamDriver(spark, lambda rows: rows, "n long", sinks=[sink], directory=tmp_path / home)

    driver("home", away=True).process([(1,)])
    copy_newest(PosixDirectory(tmp_path / "home"), PosixDirectory(tmp_path / "copy"))
    again = driver("copy", away=False)
    again.process([(2,)])
    assert taken == [1, 2]


def test_it_comes_every_nth_epoch_of_all_runs(spark: SparkSession, tmp_path: Path) -> None:
    feed, backup = Feed(tmp_path / "in"), {"snapshotBackup": tmp_path / "backup", "snapshotBackupEvery": 3}
    for time in (1, 2):
        feed.add(*rows([time], k="a"))
    run(spark, feed, tmp_path, **backup)
    assert newest(tmp_path / "backup") is None
    feed.add(*rows([12], k="a"))
    run(spark, feed, tmp_path, **backup)
    assert newest(tmp_path / "backup") is not None


@pytest.mark.logs_errors
def test_a_backup_that_fails_leaves_the_query_alone_and_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed, options = Feed(tmp_path / "in"), {"snapshotBackup": tmp_path / "backup", "snapshotBackupEvery": 1}
    feed.add(*rows([1, 2, 30], k="a"))
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "snapshots").write_text("in the way")
    progress = run(spark, feed, tmp_path, **options).lastProgress
    assert progress is not None
    assert progress["backup"]["epoch"] is None
    assert "snapshots" in progress["backup"]["error"]
    assert [record.levelname for record in caplog.records if "has no copy at all" in record.message] == ["ERROR"]
    assert sj.read_files(str(tmp_path / "out")).count() == 1
    # Once there is a copy, a newer one that fails is not as bad.
    (tmp_path / "backup" / "snapshots").unlink()
    feed.add(*rows([31], k="a"))
    run(spark, feed, tmp_path, **options)
    (tmp_path / "backup" / "snapshots" / "state").rename(tmp_path / "away")
    (tmp_path / "backup" / "snapshots" / "state").write_text("in the way")
    caplog.clear()
    feed.add(*rows([32], k="a"))
    progress = run(spark, feed, tmp_path, **options).lastProgress
    assert progress is not None
    assert progress["backup"]["epoch"] is not None
    assert [each.levelname for each in caplog.records if "has no newer copy" in each.message] == ["WARNING"]


@pytest.mark.parametrize("place", ["home", "link", "home/snapshots", "link/copy", "up"])
def test_a_copy_in_the_home_itself_is_refused(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """By whatever name; and a home in what would be the copy's snapshots."""
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1], k="a"))
    home = tmp_path / ("up/snapshots/home" if place == "up" else "home")
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(sj.AnalysisError, match=r"snapshotBackup: .* is not apart from the home of this query"):
        run(spark, feed, tmp_path, home=home, snapshotBackup=tmp_path / place, snapshotBackupEvery=1)
    assert not list(home.iterdir())


def test_how_often_without_where_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1], k="a"))
    with pytest.raises(sj.AnalysisError, match="snapshotBackupEvery needs snapshotBackup"):
        run(spark, feed, tmp_path, snapshotBackupEvery=1)
