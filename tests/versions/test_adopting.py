"""Checkpoints that another line of Spark has written are adopted, and it goes on from those that are exported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sparkjet.engine.exporting import export_checkpoint
from sparkjet.spark_line import LINE, NEWEST
from sparkjet.storage.posix_directory import PosixDirectory
from tests.crash.test_adopting import adopt, of_spark, seen
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]


def on_the_newest(place: Path, kind: str, checkpoint: str) -> None:
    """Run Spark's query in a process that finds this environment's own PySpark."""
    older = str(Path(pyspark.__file__).parents[1])
    paths = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path != older]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)])}
    subprocess.run([sys.executable, "-m", __name__, str(place), kind, checkpoint], env=environment, check=True)


@pytest.mark.parametrize("by", ["this line", "the newest"])
def test_rows_go_there_and_back(spark: SparkSession, tmp_path: Path, by: str) -> None:
    """Over a directory of Spark's file sink."""
    if LINE == NEWEST and by == "the newest":
        pytest.skip("the same line")
    feed = Feed(tmp_path / "in")
    for start in (1, 12):
        feed.add(*rows([start, start + 4], v=1))
    if by == "the newest":
        on_the_newest(tmp_path, "rows", "old")
    else:
        of_spark(spark, tmp_path, "rows", "old")
    feed.add(*rows([34], v=1))
    adopt(spark, tmp_path, "rows")
    assert seen(spark, tmp_path / "out") == [*range(5)]
    export_checkpoint(PosixDirectory(tmp_path / "home"), PosixDirectory(tmp_path / "new"))
    feed.add(*rows([40], v=1))
    if by == "the newest":
        on_the_newest(tmp_path, "rows", "new")
    else:
        of_spark(spark, tmp_path, "rows", "new")
    assert seen(spark, tmp_path / "out") == [*range(6)]


@pytest.mark.parametrize("by", ["this line", "the newest"])
def test_open_windows_are_rebuilt(spark: SparkSession, tmp_path: Path, by: str) -> None:
    if LINE == NEWEST and by == "the newest":
        pytest.skip("the same line")
    feed = Feed(tmp_path / "in")
    for start in (1, 12, 23):
        feed.add(*rows([start, start + 4], v=1))
    if by == "the newest":
        on_the_newest(tmp_path, "windows", "old")
    else:
        of_spark(spark, tmp_path, "windows", "old")
    feed.add(*rows([34, 100], v=1))
    adopt(spark, tmp_path, "windows")
    # Of each window that ends up to 90 and has rows, the sum of its rows' numbers.
    times = [1, 5, 12, 16, 23, 27, 34]
    ends = {end for time in times for end in (time // 10 * 10 + 10, time // 10 * 10 + 20)}
    sums = [sum(number for number, time in enumerate(times) if end - 20 <= time < end) for end in ends]
    assert seen(spark, tmp_path / "out") == sorted(sums)


def main(place: Path, kind: str, checkpoint: str) -> None:
    """Run Spark's query."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    of_spark(spark, place, kind, checkpoint)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
