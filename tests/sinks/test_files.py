"""The file sink: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet.clock import ManualClock
from sparkjet.errors import AnalysisError, LostTransactionError
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.read_files import read_files
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, SCHEMA, SinkContract, SinkUnderTest, transaction
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory


def under_test(spark: SparkSession, sink: FilesSink) -> SinkUnderTest:
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    sink.create()

    def read() -> list[tuple[str, int]]:
        reader = spark.read.schema(SCHEMA).format(sink.file_format).options(**sink.options)
        return [tuple(row) for row in reader.load(sink.directory.uri()).select("k", "n").collect()]

    return SinkUnderTest(sink, read, lambda: len(staged(sink.directory)))


def staged(directory: Directory) -> list[str]:
    own = directory.below(f"_sparkjet/{QUERY}")
    return [name for sink in own.names() for name in own.below(f"{sink}/staging").names()]


class TestParquet(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
        return under_test(spark, FilesSink(tmp_path / "out"))


@pytest.mark.parametrize(
    ("file_format", "options", "suffix"),
    [
        ("json", {"compression": "gzip"}, ".json.gz"),
        ("csv", {"header": "true"}, ".csv"),
        ("parquet", {}, ".parquet"),
        ("orc", {}, ".orc"),
    ],
)
def test_every_format_is_written_by_spark_and_read_by_whole_epochs(
    spark: SparkSession, tmp_path: Path, file_format: str, options: dict[str, str], suffix: str
) -> None:
    target = under_test(spark, FilesSink(tmp_path / "out dir", file_format, ("k",), options))
    rows = spark.createDataFrame([("a", 1), ("b c", 2), (None, 3)], SCHEMA)
    handle = target.sink.prepare(rows, transaction(3))
    assert handle is not None
    target.sink.commit(handle, lambda: None)
    assert sorted(target.read(), key=repr) == sorted([("a", 1), ("b c", 2), (None, 3)], key=repr)
    files = [path for path in (tmp_path / "out dir").rglob("part-*") if path.is_file()]
    assert {path.name.endswith(suffix) for path in files} == {True}
    assert {path.parent.name for path in files} == {"k=a", "k=b c", "k=__HIVE_DEFAULT_PARTITION__"}
    whole = read_files(str(tmp_path / "out dir"))
    assert sorted((tuple(row) for row in whole.select("k", "n").collect()), key=repr) == sorted(
        [("a", 1), ("b c", 2), (None, 3)], key=repr
    )


def test_a_reader_of_epochs_sees_no_part_of_one(spark: SparkSession, tmp_path: Path) -> None:
    target = under_test(spark, FilesSink(tmp_path / "out"))
    first = target.sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    second = target.sink.prepare(
        spark.createDataFrame([("b", n) for n in range(4)], SCHEMA).repartition(2), transaction(2)
    )
    assert first is not None
    assert second is not None
    target.sink.commit(first, lambda: None)

    def look() -> None:
        assert read_files(str(tmp_path / "out")).count() == 1

    target.sink.commit(second, look)
    assert read_files(str(tmp_path / "out")).count() == 5


def test_a_decided_transaction_that_is_gone_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    target = under_test(spark, FilesSink(tmp_path / "out"))
    handle = target.sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    shutil.rmtree(tmp_path / "out" / "_sparkjet" / QUERY / "results" / "staging")
    with pytest.raises(LostTransactionError, match="Epoch 1 was decided"):
        target.sink.commit(handle, lambda: None)


def test_output_that_a_user_has_removed_is_not_called_lost(spark: SparkSession, tmp_path: Path) -> None:
    target = under_test(spark, FilesSink(tmp_path / "out"))
    handle = target.sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    target.sink.commit(handle, lambda: None)
    for path in (tmp_path / "out").glob("part-*"):
        path.unlink()
    target.sink.commit(handle, lambda: None)


def test_files_of_a_late_task_attempt_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    target = under_test(spark, FilesSink(tmp_path / "out"))
    handle = target.sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    staging = tmp_path / "out" / "_sparkjet" / QUERY / "results" / "staging" / handle["staging"]
    (staging / "part-99999-late.parquet").write_bytes(b"half a file")
    target.sink.commit(handle, lambda: None)
    assert target.read() == [("a", 1)]


def test_what_is_older_than_the_retention_is_read_no_more_and_its_files_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(1_000)
    sink = FilesSink(tmp_path / "out", retention=160, clock=clock)
    target = under_test(spark, sink)
    for epoch in (1, 2, 3):
        handle = sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        clock.advance(100)
    assert sorted(row["n"] for row in read_files(str(tmp_path / "out")).collect()) == [2, 3]
    assert sorted(target.read()) == [("a", 1), ("a", 2), ("a", 3)]
    # Expired from the manifest, but still counted as published.
    assert sink.published_after(transaction(0), None) is not None
    manifest = Manifest(tmp_path / "out", QUERY, "results")
    assert manifest.contains(1)
    assert [entry.committed for entry in manifest.entries()] == [1_100, 1_100, 1_200]


def test_files_are_gone_at_their_age_limit_except_for_readers_that_have_listed_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(0)
    sink = FilesSink(tmp_path / "out", age_limit=1_600, clock=clock)
    target = under_test(spark, sink)
    times: dict[int, int] = {}

    def look() -> None:
        listed = read_files(str(tmp_path / "out"))
        sink.age(QUERY, "results")
        # Listed before: still there.
        assert {("a", epoch) for epoch, at in times.items() if clock.now() - at < 1_200} <= {
            *map(tuple, listed.collect())
        }
        old = {epoch for epoch, at in times.items() if clock.now() - at >= 1_600}
        assert {n for _, n in target.read()} & old == set()
        clock.advance(90)

    for epoch in range(1, 8):
        handle = sink.prepare(spark.createDataFrame([("a", epoch)], SCHEMA), transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)
        times[epoch] = clock.now()
        look()
    while clock.now() < 1_400:
        look()
    # Killed between the marker and the removal: the next process makes up for it.
    removing = PosixDirectory.remove_files
    monkeypatch.setattr(PosixDirectory, "remove_files", lambda *_: None)
    sink.age(QUERY, "results")
    monkeypatch.setattr(PosixDirectory, "remove_files", removing)
    assert ("a", 1) in target.read()
    clock.advance(300)
    FilesSink(tmp_path / "out", age_limit=1_600, clock=clock).age(QUERY, "results")
    assert ("a", 1) not in target.read()
    assert ("a", 7) in target.read()
    # Nothing more is published, and yet what is too old goes.
    while clock.now() < times[7] + 1_600:
        look()
    look()
    assert target.read() == []
    assert sink.published_after(transaction(6), None) is not None


def test_late_rows_age_at_the_ends_of_epochs_that_have_none(spark: SparkSession, tmp_path: Path) -> None:
    clock, feed = ManualClock(0), Feed(tmp_path / "in")
    for each in ([rows([30, 1], k="a")], [rows([2], k="a")], *([rows([40], k="a")] for _ in range(3))):
        feed.add(*each[0])
    late: list[int] = []

    def tick(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.CLEAN:
            late.append(len([*(tmp_path / "late").glob("part-*")]))
            clock.advance(40_000_000)

    windows = sj.stream(feed.read(spark)).withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"))
    writer = windows.count().writeStream.format("noop").option("lateRowsPath", tmp_path / "late")
    writer = writer.option("lateRowsRetention", "1 minute").option("checkpointLocation", tmp_path / "home")
    writer.clock(clock).onEpochPhase(tick).trigger(availableNow=True).start().awaitTermination()
    assert late[:2] == [0, 1]
    assert late[-1] == 0


def test_reading_where_nothing_was_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    del spark
    with pytest.raises(AnalysisError, match="no manifest"):
        read_files(str(tmp_path))


def test_a_directory_of_sparks_own_streaming_is_refused_and_a_copy_of_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1], k="a"))
    plain = feed.read(spark).select("k").writeStream.option("checkpointLocation", str(tmp_path / "plain"))
    plain.format("parquet").trigger(availableNow=True).start(str(tmp_path / "old")).awaitTermination()
    writer = sj.stream(feed.read(spark)).select("k").writeStream.trigger(availableNow=True)
    with pytest.raises(AnalysisError, match=r'path: ".*/old" was written by Spark\'s own streaming.*_spark_metadata'):
        writer.option("checkpointLocation", tmp_path / "home").start(str(tmp_path / "old"), "parquet")
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "old" / "_sparkjet").exists()
    spark.read.parquet(str(tmp_path / "old")).write.parquet(str(tmp_path / "new"))
    target = under_test(spark, FilesSink(tmp_path / "new"))
    handle = target.sink.prepare(spark.createDataFrame([("b", 2)], SCHEMA), transaction(1))
    assert handle is not None
    target.sink.commit(handle, lambda: None)
    assert sorted(target.read()) == [("a", None), ("b", 2)]


def test_a_directory_of_delta_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "out" / "_delta_log").mkdir(parents=True)
    with pytest.raises(AnalysisError, match=r"lateRowsPath: .* was written by Delta"):
        FilesSink(tmp_path / "out", option="lateRowsPath").check(spark.createDataFrame([], SCHEMA).schema)
