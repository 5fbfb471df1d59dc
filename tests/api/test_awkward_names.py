"""Names of directories that Spark, Hadoop or a shell would take for something else, and starts that read them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "sparkjet_awkward"
NAMES = (
    # As a pattern, it stands for another directory.
    "[ab]*",
    "a[ b]{b,c}?*\\%:,;=&#+$~'\"日é.",
    # Spark has once encoded spaces in names, and looks for what it wrote there.
    ".a b",
    "_a%20b",
    "x=" + "a" * 198,
)


@pytest.fixture(autouse=True)
def _no_table_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql(f"DROP TABLE IF EXISTS {TABLE}")


def run(spark: SparkSession, feed: Feed, place: Path, handed: list[Any]) -> None:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
    counts = windows.select("k", "count")
    query = sj.start(
        counts.writeStream.format("csv").option("path", place / "out"),
        counts.writeStream.foreachBatch(lambda found, _: handed.extend(map(tuple, found.collect()))),
        lateRows=windows.lateRows.writeStream.format("json").option("path", place / "late").trigger(availableNow=True),
        checkpointLocation=str(place / "home"),
    )
    query.awaitTermination()


@pytest.mark.crash
@pytest.mark.interpreted
@pytest.mark.parametrize(
    "name",
    [
        # All at once, one below the other.
        pytest.param("/".join(NAMES), id="all"),
        *(pytest.param(name, id=str(number), marks=pytest.mark.long) for number, name in enumerate(NAMES)),
    ],
)
def test_a_second_start_reads_back_what_the_first_has_written(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for taken, decoy in (("[ab]*", "ab"), (".a b", ".a%20b"), ("_a%20b", "_a%2520b")):
        for place in {decoy, "/".join(decoy if part == taken else part for part in name.split("/"))}:
            for number in range(3):
                (tmp_path / place / "home" / "spark" / f"{number:06d}").mkdir(parents=True, exist_ok=True)
    feed, handed = Feed(tmp_path / "in"), list[Any]()
    feed.add(*rows([1, 2, 12], k="a"))
    run(spark, feed, tmp_path / name, handed)
    feed.add(*rows([3, 15, 21], k="b"))
    run(spark, feed, tmp_path / name, handed)
    assert sorted(map(tuple, sj.read_files(str(tmp_path / name / "out")).collect())) == [("a", 1), ("a", 2), ("b", 1)]
    assert [row.k for row in sj.read_files(str(tmp_path / name / "late")).collect()] == ["b"]
    assert sorted(handed) == [("a", 1), ("a", 2), ("b", 1)]
