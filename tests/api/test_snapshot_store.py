"""Option snapshotStore: a query whose snapshots are in a grid, and what of it is refused."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.grid.embedded import embedded_member
from sparkjet.storage.local_directory import local_directory
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An embedded member that ends with the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    os.kill(embedded_member(local_directory("grid:"), "64m").process, signal.SIGKILL)


def writer(spark: SparkSession, place: Path, **options: Any) -> Any:
    stream = sj.stream(Feed(place / "in").read(spark)).withWatermark("ts", "5 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
    return counts.writeStream.format("files").option("path", place / "out").options(**options)


@pytest.mark.usefixtures("embedded")
def test_a_query_goes_on_from_the_grid_and_has_no_directory(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    for times in ([1, 2, 11], [12, 31]):
        feed.add(*rows(times, k="a"))
        query = writer(spark, tmp_path, snapshotStore="grid", queryId="counts").trigger(availableNow=True).start()
        query.awaitTermination()
    found = sj.read_files(str(tmp_path / "out")).select("count").collect()
    # The second run has counted on where the first one stopped.
    assert sorted(row[0] for row in found) == [2, 2]
    assert not list(tmp_path.rglob("snapshots"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshotStore": "grid"}, "snapshotStore needs a name of the query in the grid"),
        ({"snapshotStore": "hdfs://a/b", "queryId": "q"}, r'snapshotStore="hdfs://a/b" is neither grid nor grid://'),
        ({"queryId": "q", "checkpointLocation": "c"}, "queryId names a query in a grid: set snapshotStore too"),
    ],
)
def test_what_says_nothing_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    Feed(tmp_path / "in").add(*rows([1], k="a"))
    with pytest.raises(sj.AnalysisError, match=message):
        writer(spark, tmp_path, **options).start()
