"""Forks: they go on from a pinned record as the query has, and touch nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api import fork as forks
from sparkjet.connectors.grid.options import GRID_JOURNAL
from sparkjet.errors import AnalysisError
from sparkjet.snapshots import DirectoryStore
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.interpreted, pytest.mark.crash]


def fed(place: Path) -> Feed:
    feed = Feed(place / "in")
    feed.add(*rows([1, 2, 12], k="a", v=1), *rows([3], k="b", v=2))
    feed.add(*rows([16, 3], k="a", v=5))
    feed.add(*rows([17, 3], k="a", v=5))
    return feed


def writers(spark: SparkSession, feed: Feed, place: Path) -> list[Any]:
    """Windows into files, with late rows."""
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.sum("v").alias("v"))
    into = windows.writeStream.format("files").option("path", place / "out").option("lateRowsPath", place / "late")
    return [into.trigger(availableNow=True)]


def totals(spark: SparkSession, feed: Feed, seen: list[Any]) -> Any:
    def keep(batch: DataFrame, epoch: int) -> None:
        seen.extend(map(tuple, batch.collect()))

    stream = sj.stream(feed.read(spark))
    return stream.groupBy("k").agg(F.sum("v").alias("v")).writeStream.outputMode("update").foreachBatch(keep)


def read(place: Path) -> list[Any]:
    return sorted(map(str, sj.read_files(place).collect()))


def files(place: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in place.rglob("*") if each.is_file()}


def test_a_fork_gives_what_the_query_has_given_since_and_touches_nothing_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, home = fed(tmp_path), str(tmp_path / "home")
    query = sj.start(*writers(spark, feed, tmp_path), checkpointLocation=home)
    query.awaitTermination()
    pin = query.snapshot("before")
    before, late_before = read(tmp_path / "out"), read(tmp_path / "late")
    feed.add(*rows([25, 1], k="a", v=7), *rows([16], k="b", v=1))
    sj.start(*writers(spark, feed, tmp_path), checkpointLocation=home).awaitTermination()
    untouched = files(tmp_path / "home"), files(tmp_path / "out"), files(tmp_path / "late")

    fork = sj.fork(home, at="before", to=tmp_path / "fork")
    assert fork.epoch == pin.epoch
    assert fork.query != query.id
    fork.start(*writers(spark, feed, tmp_path)).awaitTermination()
    assert read(Path(fork.outputs) / "results") == sorted({*read(tmp_path / "out")} - {*before}) != []
    assert read(Path(fork.outputs) / "late-of-results") == sorted({*read(tmp_path / "late")} - {*late_before}) != []
    # It goes on as any query does.
    feed.add(*rows([40], k="a", v=1))
    pins = DirectoryStore(tmp_path / "home" / "snapshots")
    pins.remove_pin(pin.slot, "before")
    untouched = files(tmp_path / "home"), *untouched[1:]
    # As the program does when it is run again, also without the pin.
    again = sj.fork(home, at="before", to=tmp_path / "fork")
    assert again == fork
    again.start(*writers(spark, feed, tmp_path)).awaitTermination()
    assert len(read(Path(fork.outputs) / "results")) > len({*read(tmp_path / "out")} - {*before})
    assert (files(tmp_path / "home"), files(tmp_path / "out"), files(tmp_path / "late")) == untouched


def test_results_that_replace_each_other_are_forked_without_their_function(spark: SparkSession, tmp_path: Path) -> None:
    feed, home, seen = fed(tmp_path), str(tmp_path / "home"), []  # type: ignore[var-annotated]
    query = sj.start(totals(spark, feed, seen).trigger(availableNow=True), checkpointLocation=home)
    query.awaitTermination()
    query.snapshot("before")
    feed.add(*rows([25], k="a", v=7))
    count = len(seen)
    fork = sj.fork(home, at="before", to=tmp_path / "fork", outputs=tmp_path / "aside")
    fork.start(totals(spark, feed, seen).trigger(availableNow=True)).awaitTermination()
    assert len(seen) == count
    assert [(row.k, row.v) for row in sj.read_files(tmp_path / "aside" / "results").collect()] == [("a", 30)]


def test_what_a_fork_cannot_be_made_of_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, home = fed(tmp_path), str(tmp_path / "home")
    query = sj.start(totals(spark, feed, []).trigger(availableNow=True), checkpointLocation=home)
    query.awaitTermination()
    query.snapshot("before")
    with pytest.raises(AnalysisError, match=r'there is no pin "after"; .*Known: before'):
        sj.fork(home, at="after", to=tmp_path / "fork")
    with pytest.raises(AnalysisError, match="outputs: a grid has no place for the files of a fork"):
        sj.fork(home, at="before", to="grid://127.0.0.1:1/fork")
    fork = sj.fork(home, at="before", to=tmp_path / "fork")
    query.snapshot("other")
    with pytest.raises(AnalysisError, match=r'was forked from record \d, "before", of query .* its own place'):
        sj.fork(home, at="other", to=tmp_path / "fork")
    with pytest.raises(AnalysisError, match=r"has records of query .* Give the fork its own place"):
        sj.fork(home, at="before", to=home)
    wrong: Any = None
    for arguments in ({"at": wrong, "to": "x"}, {"at": "before", "to": wrong}):
        with pytest.raises(AnalysisError, match=r"(at|to): None is not text"):
            sj.fork(home, **arguments)
    with pytest.raises(AnalysisError, match="outputs"):
        sj.fork(home, at="before", to=tmp_path / "new", outputs="")
    assert not (tmp_path / "new").exists()
    with monkeypatch.context() as reading:
        # As if it had begun to read a journal since.
        reading.setattr(forks, "source_names", lambda _: [GRID_JOURNAL])
        with pytest.raises(
            AnalysisError, match=r'journal"\) would register a reader.*pinned as "before". Pin the query'
        ):
            fork.start(totals(spark, feed, []))
    cleaning = spark.readStream.schema("k string, v long").option("cleanSource", "delete")
    stream = sj.stream(cleaning.json(str(feed.directory))).groupBy("k").agg(F.sum("v").alias("v"))
    with pytest.raises(AnalysisError, match="cleanSource=delete discards what has been read"):
        fork.start(stream.writeStream.outputMode("update").format("noop"))
    sj.register_sources(spark)
    queue = sj.stream(spark.readStream.format("sparkjet-artemis").option("queues", "orders").load())
    with pytest.raises(AnalysisError, match="fork: sparkjet-artemis orders discards what has been read"):
        # Whether or not it was pinned with messages that are not acknowledged.
        fork.start(queue.groupBy("queue").count().writeStream.outputMode("update").format("noop"))


def test_a_fork_takes_no_place_that_the_query_writes_to(spark: SparkSession, tmp_path: Path) -> None:
    feed, home, data = fed(tmp_path), str(tmp_path / "home"), tmp_path / "data"
    [into] = writers(spark, feed, tmp_path)
    query = into.option("path", data / "results").option("checkpointLocation", home).start()
    query.awaitTermination()
    query.snapshot("before")
    before = files(data)
    within = sj.fork(home, at="before", to=tmp_path / "within", outputs=data / "results" / "fork")
    above = sj.fork(home, at="before", to=tmp_path / "above", outputs=data)
    for fork in (within, above):
        with pytest.raises(AnalysisError, match=r"outputs: .* is not apart from .*data/results"):
            fork.start(into)
    for writer in (totals(spark, feed, []), into.option("path", tmp_path / "elsewhere")):
        with pytest.raises(AnalysisError, match=r"outputs: .*data/results\" has files of something else"):
            above.start(writer)
    assert files(data) == before
