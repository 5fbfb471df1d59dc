"""Snapshots that are copied to another home, from which the query goes on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.cli import main
from sparkjet.errors import RecoveryError
from sparkjet.snapshots import DirectoryStore, copying
from sparkjet.snapshots.copying import copy_newest, files_of
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.storage.grid_location import GridLocation
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows
from tests.grid.grids import grid_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

# Homes that are lost or copied: a first run need not prove what becomes of them.
pytestmark = pytest.mark.crash


def run(spark: SparkSession, feed: Feed, home: Path, out: Path) -> None:
    """Let a query with state and an outbox come to the end of its feed."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()

    def write(batch: Any, _: int) -> None:
        batch.write.mode("append").parquet(str(out))

    writer = counts.writeStream.foreachBatch(write).option("checkpointLocation", home).trigger(availableNow=True)
    writer.start().awaitTermination()


def fed(place: Path) -> Feed:
    feed = Feed(place / "in")
    feed.add(*rows([1, 2, 11], k="a"))
    return feed


def counted(spark: SparkSession, out: Path) -> list[int]:
    return [row[0] for row in spark.read.parquet(str(out)).orderBy("window").select("count").collect()]


def check(spark: SparkSession, place: Path, between: Directory) -> None:
    """Copy a home elsewhere twice, and from there to a third place, where the query goes on."""
    home, again, feed = PosixDirectory(place / "home"), PosixDirectory(place / "again"), fed(place)
    run(spark, feed, home.path, place / "out")
    assert copy_newest(home, between)[2] > 0
    # Nothing is new.
    assert copy_newest(home, between)[2] == 0
    feed.add(*rows([12, 22], k="a"))
    run(spark, feed, home.path, place / "out")
    slot, record, _ = copy_newest(home, between)
    assert copy_newest(between, again)[:2] == (slot, record)
    assert set(again.below("snapshots").files()) < set(home.below("snapshots").files())
    feed.add(*rows([41], k="a"))
    run(spark, feed, home.path, place / "out-home")
    run(spark, feed, again.path, place / "out-again")
    assert counted(spark, place / "out-again") == counted(spark, place / "out-home") == [2, 1]


# To a grid and back it is the same with another directory in between.
@pytest.mark.long
def test_a_query_goes_on_from_a_copy(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, PosixDirectory(tmp_path / "between"))


def test_a_copy_to_a_grid_and_back(spark: SparkSession, tmp_path: Path) -> None:
    with grid_of(tmp_path, 2) as grid:
        addresses = grid.addresses
        check(spark, tmp_path, GridDirectory(GridLocation(addresses, grid.access), "copied"))


def test_of_two_copies_at_once_neither_takes_the_other_s_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one has copied an earlier record, and comes to remove what that does not name."""
    home, target, feed = PosixDirectory(tmp_path / "home"), PosixDirectory(tmp_path / "copy"), fed(tmp_path)
    run(spark, feed, home.path, tmp_path / "out")
    removed = copying._remove_others
    copied = []

    def late(to: Directory, named: Any) -> None:
        monkeypatch.setattr(copying, "_remove_others", removed)
        feed.add(*rows([12, 22], k="a"))
        run(spark, feed, home.path, tmp_path / "out")
        copied.append(copy_newest(home, target)[0])
        removed(to, named)

    monkeypatch.setattr(copying, "_remove_others", late)
    copy_newest(home, target)
    slot, record = RecordLog(DirectoryStore(target.below("snapshots"))).newest() or pytest.fail("no record")
    assert [slot] == copied
    for place, names in files_of(record).items():
        assert set(names) <= target.below(f"snapshots/{place}").files().keys()


def test_what_is_missing_or_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    homes = [PosixDirectory(tmp_path / name) for name in ("a", "b", "c")]
    for name in ("a", "b"):
        run(spark, fed(tmp_path / f"of-{name}"), tmp_path / name, tmp_path / "out")
    with pytest.raises(RecoveryError, match="which is not an earlier one of"):
        copy_newest(homes[0], homes[1])
    with pytest.raises(RecoveryError, match="contains no record"):
        copy_newest(homes[2], homes[1])
    state = homes[0].below("snapshots/state")
    state.remove_files(state.files())
    with pytest.raises(RecoveryError, match="which is missing"):
        copy_newest(homes[0], homes[2])
    assert not (tmp_path / "c" / "snapshots" / "log").exists() or not homes[2].below("snapshots/log").names()


def test_the_commands(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(spark, fed(tmp_path), tmp_path / "home", tmp_path / "out")
    assert main(["snapshots", "list", str(tmp_path / "home")]) == 0
    assert "record 0: " in capsys.readouterr().out
    assert main(["snapshots", "inspect", str(tmp_path / "home")]) == 0
    assert "rows in" in capsys.readouterr().out
    assert main(["snapshots", "export", str(tmp_path / "home"), str(tmp_path / "copy")]) == 0
    assert "files were copied" in capsys.readouterr().out
    assert main(["snapshots", "list", str(tmp_path / "nowhere")]) == 1
    assert "contains no record of a query" in capsys.readouterr().err


def test_a_home_moves_to_a_grid_with_another_token(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guide's alternative to a rolling restart with another token or version."""
    run(spark, fed(tmp_path), tmp_path / "home", tmp_path / "out")
    with ExitStack() as stack:
        grids = {}
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
            grids[name] = stack.enter_context(grid_of(tmp_path / name, 1, backup_count=0))

        def snapshots(command: str, *arguments: str, of: str) -> str:
            conf = "--conf", f"spark.sparkjet.grid.tokenFile={tmp_path / of / 'token'}"
            try:
                assert main(["snapshots", command, *arguments, *conf]) == 0
            finally:
                spark.conf.unset("spark.sparkjet.grid.tokenFile")
            return capsys.readouterr().out

        old, new = (f"grid://{grid.members[0].address.uri.partition('//')[2]}/home" for grid in grids.values())
        snapshots("import", str(tmp_path / "home"), old, of="old")
        snapshots("export", old, str(tmp_path / "copy"), of="old")
        snapshots("import", str(tmp_path / "copy"), new, of="new")
        before, after = snapshots("list", old, of="old"), snapshots("list", new, of="new")
        assert before.startswith("record 1: ")
        assert after == before
