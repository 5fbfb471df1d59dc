"""Files that Spark's sources keep in its checkpoint are saved; sources that a restart could not resume are refused."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import sparkjet as sj
from sparkjet.engine.phases import EpochPhase
from sparkjet.engine.spark_checkpoint import SparkCheckpoint, check_readable, with_sources
from sparkjet.errors import RecoveryError
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import SparkPosition
from tests.counting import counting
from tests.feed import SCHEMA, START, Feed, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(tmp_path: Path) -> SparkCheckpoint:
    """A run's directory as Spark leaves it while batch 1 runs, with a file source and one with initial offsets."""
    files = {
        "metadata": '{"id":"q"}',
        "offsets/0": "v1\n{}\n0",
        "offsets/1": "v1\n{}\n1",
        "commits/0": "v1\n{}",
        "sources/0/0": "v1\nfirst",
        "sources/0/1": "v1\nsecond",
        "sources/0/1.compact": "v1\nfirst and second",
        "sources/0/.1.crc": "crc",
        "sources/0/.2.8ba4f4cd-0f1e-4b1c-a8a4-5cd7d8d7f4e9.TID35.tmp": "half of a file",
        "sources/0/..2.8ba4f4cd-0f1e-4b1c-a8a4-5cd7d8d7f4e9.TID35.tmp.crc": "crc",
        "sources/1/0": "v1\n{}",
        "sources/.crc": "crc",
    }
    add(tmp_path / "run", files)
    return SparkCheckpoint(tmp_path / "run")


def add(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def capture(checkpoint: SparkCheckpoint, tmp_path: Path) -> list[str]:
    store = DirectoryStore(tmp_path / "snapshots")
    store.open("checkpointLocation")
    return sorted(checkpoint.capture(1, None, store, "p").sources)


def test_numbered_files_are_saved_and_those_of_hadoop_left_alone(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    assert capture(checkpoint, tmp_path) == ["sources/0/1.compact", "sources/1/0"]


def test_a_home_whose_sources_have_names_is_refused_by_an_older_spark() -> None:
    named = SparkPosition(4, {"metadata": "{}", "offsets/4": "v2\n{}\nclicks:-"}, {})
    check_readable(named, (4, 2))
    with pytest.raises(RecoveryError, match=r"Spark 4\.1 cannot go on .*readStream\.name.* Spark 4\.2 or later"):
        check_readable(named, (4, 1))
    check_readable(SparkPosition(4, {"offsets/4": "v1\n{}\n-"}, {}), (4, 0))


def test_an_empty_directory_is_not_state(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    (checkpoint.directory / "sources" / "2").mkdir()
    assert capture(checkpoint, tmp_path) == ["sources/0/1.compact", "sources/1/0"]


def test_where_iceberg_s_source_began_is_saved_and_moves_with_it(checkpoint: SparkCheckpoint, tmp_path: Path) -> None:
    add(checkpoint.directory, {"sources/1/offsets/0": "{}"})
    assert capture(checkpoint, tmp_path) == ["sources/0/1.compact", "sources/1/0", "sources/1/offsets/0"]
    position = SparkPosition(4, {"offsets/4": "v1\n{}\n5\n6"}, {"sources/1/offsets/0": "blob"})
    assert with_sources(position, [("0", ("1", 1))]).sources == {"sources/0/offsets/0": "blob"}


@pytest.mark.parametrize(
    "foreign",
    [
        "sources/1/_schema_log/0",
        "sources/1/offsets/1",
        "sources/1/0/0.json",
        "sources/1/state.json",
        "sources/1/7.tmp",
        "sources/1/compact",
        "sources/1/1.compact.bak",
        "sources/state",
        "sources/1/rocks/000012.sst",
    ],
)
def test_whatever_else_is_refused_by_its_name(checkpoint: SparkCheckpoint, tmp_path: Path, foreign: str) -> None:
    if foreign == "sources/1/0/0.json":
        (checkpoint.directory / "sources" / "1" / "0").unlink()
    add(checkpoint.directory, {foreign: "{}"})
    named = "/".join(foreign.split("/")[:3])
    with pytest.raises(sj.RecoveryError, match=rf"a source keeps {named}.*numbered files.*Nothing was decided"):
        capture(checkpoint, tmp_path)
    assert not list((tmp_path / "snapshots").rglob("p-*"))


def counts(session: SparkSession, directory: Path, sources: Sequence[str], *, named: bool) -> dict[str, int]:
    """Rows by feed in closed windows, over all runs in the directory; each feed is a source of Spark's."""
    readers = {name: session.readStream.schema(SCHEMA) for name in sources}
    inputs = [(readers[name].name(name) if named else readers[name]).json(str(directory / name)) for name in sources]
    united = sj.stream(reduce(DataFrame.union, inputs)).withWatermark("ts", "0 seconds")
    result = united.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))
    writer = result.writeStream.format("files").option("path", directory / "out").trigger(availableNow=True)
    writer.options(checkpointLocation=directory / "ck", onChange="apply").start().awaitTermination()
    return {
        row.k: row.n for row in sj.read_files(str(directory / "out")).groupBy("k").agg(F.sum("n").alias("n")).collect()
    }


@pytest.mark.parametrize("named", [pytest.param(False, marks=pytest.mark.long), True])
def test_sources_are_found_in_the_second_version_of_the_offset_log(
    spark: SparkSession, tmp_path: Path, named: bool
) -> None:
    """Its lines have another order than the sources; with names, sources may change places between two runs."""
    session = spark.newSession()
    evolution = {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"} if named else {}
    for setting, value in {"spark.sql.streaming.offsetLog.formatVersion": "2", **evolution}.items():
        session.conf.set(setting, value)
    names = ["zebra", "ant", "bee", "cow", "dog"]
    feeds = {name: Feed(tmp_path / name) for name in names}
    for n, name in enumerate(names):
        feeds[name].add(*rows([1] * (n + 1) + [20], k=name))
    assert counts(session, tmp_path, names, named=named) == {name: n + 1 for n, name in enumerate(names)}
    for name in names:
        feeds[name].add(*rows([40], k=name))
    again = [*reversed(names)] if named else names
    assert counts(session, tmp_path, again, named=named) == {name: n + 2 for n, name in enumerate(names)}
    [run] = (tmp_path / "ck" / "spark").iterdir()
    assert (run / "offsets" / "1").read_text().startswith("v2")
    # Some go, and one comes, in the first place.
    for name in ("fox", "dog", "bee"):
        Feed(tmp_path / name).directory.joinpath("more.json").write_text(json.dumps({"ts": START + 60, "k": name}))
    left = ["fox", "dog", "bee"] if named else ["fox", *names]
    assert counts(session, tmp_path, left, named=named) == {name: n + 3 for n, name in enumerate(names)}


def test_another_version_of_the_offset_log_is_refused_by_its_name(checkpoint: SparkCheckpoint) -> None:
    add(checkpoint.directory, {"offsets/1": "v3\n{}\n1"})
    with pytest.raises(sj.RecoveryError, match=r"offset log has version 'v3'.*Unset .*offsetLog.formatVersion"):
        checkpoint.end_offsets(1)


def test_the_first_epoch_refuses_it_before_anything_is_decided(spark: SparkSession, tmp_path: Path) -> None:
    """The file stands for what a source would have written while Spark planned the batch."""
    feed = Feed(tmp_path / "in")
    feed.add(*rows([0, 5, 100], p="a", k="x", v=1))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "10 seconds")
    result = stream.groupBy(sj.window("ts", "20 seconds"), "k").agg(F.count("*").alias("n"))

    def keep(phase: EpochPhase, _: int) -> None:
        if phase is EpochPhase.BEGIN:
            for run in (tmp_path / "ck" / "spark").iterdir():
                add(run, {"sources/0/_schema_log/0": "v1"})

    writer = result.writeStream.format("files").option("path", tmp_path / "out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", tmp_path / "ck").onEpochPhase(keep).start()
    with pytest.raises(sj.RecoveryError, match="a source keeps sources/0/_schema_log"):
        query.awaitTermination()
    with pytest.raises(sj.AnalysisError, match="no sparkjet query has published"):
        sj.read_files(str(tmp_path / "out"))
    again = result.writeStream.format("files").option("path", tmp_path / "out").trigger(availableNow=True)
    again.option("checkpointLocation", tmp_path / "ck").start().awaitTermination()
    assert sj.read_files(str(tmp_path / "out")).count() == 1


class Growing(DataSource):
    """As many numbers as a file says."""

    @classmethod
    def name(cls) -> str:
        return "growing"

    def schema(self) -> str:
        return "id long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        class Reader(DataSourceStreamReader):
            place = self.options["place"]

            def initialOffset(self) -> dict[str, int]:
                return {"rows": 0}

            def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
                return {"rows": int(Path(self.place).read_text())}

            def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
                return [InputPartition((start["rows"], end["rows"]))]

            def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
                yield from ((number,) for number in range(*partition.value))

        return Reader()


@pytest.mark.parametrize("source", [Growing, counting([2, 5, 6])], ids=["reader", "simple reader"])
def test_a_start_reads_on_a_source_that_does_not_know_of_available_now(
    spark: SparkSession, tmp_path: Path, source: type[DataSource]
) -> None:
    """Of such a source Spark runs one batch: if that were the last one again, no start would read anything new."""
    spark.dataSource.register(source)
    count, seen = tmp_path / "count", list[int]()
    for rows_by_now in (2, 5, 6, 6):
        count.write_text(str(rows_by_now))
        stream = sj.stream(spark.readStream.format(source.name()).option("place", str(count)).load())
        writer = stream.writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
        writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start().awaitTermination()
        assert sorted(seen) == [*range(rows_by_now)]
