"""Drivers that are killed while they take over a Spark query, and while they give it back: SIGKILL at each write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.exporting import export_checkpoint
from sparkjet.storage.posix_directory import PosixDirectory
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

LONGEST = 60
WRITES = ("put", "write", "rename", "remove_files", "remove")


def deadly(at: int) -> None:
    """Let this process die before a write of this number."""
    left = [at]

    def killing(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*given, **named)

        return wrapped

    for name in WRITES:
        setattr(PosixDirectory, name, killing(getattr(PosixDirectory, name)))


def of_spark(spark: SparkSession, place: Path, kind: str, checkpoint: str, out: str = "out") -> None:
    feed: DataFrame = Feed(place / "in").read(spark)
    if kind == "windows":
        window = F.window("ts", "20 seconds", "10 seconds")
        feed = feed.withWatermark("ts", "10 seconds").groupBy(window).agg(F.sum("id").alias("id"))
    writer = feed.select("id").writeStream.format("parquet").option("checkpointLocation", str(place / checkpoint))
    writer.trigger(availableNow=True).start(str(place / out)).awaitTermination()


def adopt(spark: SparkSession, place: Path, kind: str) -> None:
    stream: Any = sj.stream(Feed(place / "in").read(spark))
    if kind == "windows":
        window = sj.window("ts", "20 seconds", "10 seconds")
        stream = stream.withWatermark("ts", "10 seconds").groupBy(window).agg(F.sum("id").alias("id"))
    writer = stream.select("id").writeStream.format("parquet").trigger(availableNow=True)
    writer.options(checkpointLocation=place / "home", path=place / "out", adopt=place / "old")
    writer.option("adoptReplay", kind == "windows").start().awaitTermination()


def seen(spark: SparkSession, out: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(out)).collect())


def main(place: Path, kind: str, at: int) -> None:
    """Adopt, or export, and die on the way."""
    if kind == "export":
        deadly(at)
        export_checkpoint(PosixDirectory(place / "home"), PosixDirectory(place / "new"))
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    deadly(at)
    adopt(spark, place, kind)


def died(place: Path, kind: str, at: int) -> bool:
    status = subprocess.run([sys.executable, "-m", __name__, str(place), kind, str(at)], check=False).returncode
    assert status in {0, -signal.SIGKILL}
    return status != 0


@pytest.mark.parametrize("kind", ["rows", "planned", "windows"])
def test_each_row_is_seen_once_wherever_the_takeover_is_killed(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """By readers of the list of Spark's file sink; also of a batch that was planned, or with windows that were open."""
    begun = tmp_path / "begun"
    feed = Feed(begun / "in")
    for start in (1, 12, 23):
        feed.add(*rows([start, start + 4], v=1))
    of_spark(spark, begun, kind, "old")
    if kind == "planned":
        # As a driver dies between the file sink's list and its commit, or before the list: the two differ in the end.
        (begun / "old" / "commits" / "2").unlink()
        (begun / "out" / "_spark_metadata" / "2").unlink()
    feed.add(*rows([34, 100], v=1))
    place = tmp_path / "place"
    whole = taken_over(spark, begun, place, kind)
    assert whole == [*range(8)] if kind != "windows" else len(whole) > 3
    # The others differ up to the first record.
    for at in range(1, LONGEST if kind == "rows" else 9):
        shutil.rmtree(place)
        copy(begun, place)
        if not died(place, kind, at):
            # The note, what the home keeps, a record, an epoch.
            assert at > 9
            return
        adopt(spark, place, kind)
        assert seen(spark, place / "out") == whole, at
    assert kind != "rows"


def copy(begun: Path, place: Path) -> None:
    """The same query of Spark's in another place, whose logs name it."""
    shutil.copytree(begun, place)
    logs = (place / "out" / "_spark_metadata", place / "old" / "sources" / "0")
    for entry in (entry for log in logs for entry in log.glob("[0-9]*")):
        entry.write_text(entry.read_text().replace(str(begun), str(place)))
        (entry.parent / f".{entry.name}.crc").unlink(missing_ok=True)


def taken_over(spark: SparkSession, begun: Path, place: Path, kind: str) -> list[int]:
    copy(begun, place)
    adopt(spark, place, kind)
    return seen(spark, place / "out")


def test_an_export_that_is_killed_is_called_again(spark: SparkSession, tmp_path: Path) -> None:
    begun, place, at = tmp_path / "begun", tmp_path / "place", 0
    feed = Feed(begun / "in")
    feed.add(*rows([1, 2], v=1))
    of_spark(spark, begun, "rows", "old")
    feed.add(*rows([3], v=1))
    adopt(spark, begun, "rows")
    while True:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(begun, place)
        if not died(place, "export", at):
            break
        export_checkpoint(PosixDirectory(place / "home"), PosixDirectory(place / "new"))
        made = {path.relative_to(place / "new") for path in (place / "new").rglob("*") if path.is_file()}
        assert {str(path) for path in made} >= {"metadata", "offsets/1", "commits/1"}
        assert not {str(path) for path in made} & {"offsets/2"}
        at += 1
    assert at > 6


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
