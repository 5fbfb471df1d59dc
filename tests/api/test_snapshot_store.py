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
from sparkjet.storage.grid_location import embedded_member
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


# In CI, `crash/test_in_a_grid.py` restarts queries whose homes are in a grid; the other one below starts in one.
@pytest.mark.long
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
    assert sj.read_state("grid:///counts").select("k", "count").collect() == [("a", 1)]
    assert not list(tmp_path.rglob("snapshots"))
    assert sj.erase("grid:///counts", {"k": "a"}).rows > 0
    assert sj.read_state("grid:///counts").collect() == []


@pytest.mark.crash
@pytest.mark.interpreted
def test_a_query_whose_grid_was_lost_as_a_whole_is_known_by_what_it_has_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All members are lost, and the driver starts on another machine: nothing of the home is anywhere."""
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 11, 31], k="a"))

    def run(machine: str, **options: Any) -> None:
        (tmp_path / machine).mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / machine))
        settings = {"snapshotStore": "grid", "queryId": "counts", **options}
        try:
            writer(spark, tmp_path, **settings).trigger(availableNow=True).start().awaitTermination()
        finally:
            os.kill(embedded_member(local_directory("grid:"), "64m").process, signal.SIGKILL)

    def published(place: str) -> list[int]:
        return sorted(row["count"] for row in sj.read_files(str(tmp_path / place)).collect())

    run("first")
    assert published("out") == [1, 2]
    assert not list(tmp_path.rglob("snapshots"))
    with pytest.raises(sj.RecoveryError, match=r"The home .* has no record, but sink 'results' .* has epoch \d+"):
        run("second")
    assert published("out") == [1, 2]
    run("second", path=tmp_path / "elsewhere")
    assert published("elsewhere") == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshotStore": "grid"}, "snapshotStore needs a name of the query in the grid"),
        ({"snapshotStore": "hdfs://a/b", "queryId": "q"}, r'snapshotStore="hdfs://a/b" is neither grid nor grid://'),
        ({"queryId": "q", "checkpointLocation": "c"}, "queryId names a query in a grid: set snapshotStore too"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    Feed(tmp_path / "in").add(*rows([1], k="a"))
    with pytest.raises(sj.AnalysisError, match=message):
        writer(spark, tmp_path, **options).start()
