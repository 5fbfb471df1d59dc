"""A directory as a stream of whole epochs: rows, columns, watermarks, what has expired, and two queries in a row."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import sparkjet as sj
from sparkjet.connectors.files.source import FilesDataSource, FilesStreamReader
from sparkjet.errors import AnalysisError, SourceError
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.manifest import Manifest, ManifestEntry
from sparkjet.sinks.pace import Pace
from sparkjet.testing import StreamDriver
from sparkjet.testing.sink_contract import transaction
from sparkjet.time import MIN
from tests.connectors.grid.chained import SCHEMA, at, both_in_batch, per_hour, per_ten_minutes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

HOUR = 3_600_000_000


def publish(path: Path, epoch: int, *watermark: int | None, query: str = "q", form: str = "parquet") -> None:
    """An epoch as the manifest has it; without a watermark as earlier versions wrote it."""
    told = {"watermark": watermark[0]} if watermark else None
    entry = ManifestEntry(epoch, [f"part-{epoch}"], form, {"type": "struct", "fields": []}, {}, epoch, None, told)
    Manifest(path, query, "results").add(entry)


def reader(path: Path) -> FilesStreamReader:
    return FilesStreamReader(path, FilesDataSource({"path": str(path)}).schema(), None)


def offset(epochs: Mapping[str, int], watermarks: Mapping[str, int | None]) -> dict[str, Any]:
    trees = ({query: {"results": value} for query, value in each.items()} for each in (epochs, watermarks))
    return dict(zip(("source", "offsets", "watermarks"), ("sparkjet-files", *trees), strict=True))


def test_a_batch_has_whole_epochs_and_the_watermark_of_the_last_of_each_writer(tmp_path: Path) -> None:
    for epoch, watermark in ((1, MIN), (2, 20), (4, 40)):
        publish(tmp_path, epoch, watermark)
    publish(tmp_path, 3, 30, query="p")
    one = reader(tmp_path)
    start, everything = one.initialOffset(), offset({"p": 3, "q": 4}, {"p": 30, "q": 40})
    assert one.latestOffset(start, ReadAllAvailable()) == everything
    first = one.latestOffset(start, ReadMaxRows(1))
    # Before the first watermark there is none, and none is not another one.
    assert first == offset({"p": 3, "q": 1}, {"p": 30})
    second = one.latestOffset(first, ReadMaxRows(1))
    assert second == offset({"p": 3, "q": 2}, {"p": 30, "q": 20})
    assert [each.value.path for each in one.partitions(first, everything)] == [
        str(tmp_path / "part-2"), str(tmp_path / "part-4"),
    ]  # fmt: skip
    assert one.reportLatestOffset() == offset({"p": 3, "q": 4}, {})
    one.prepareForTriggerAvailableNow()
    publish(tmp_path, 5, 50)
    publish(tmp_path, 1, 10, query="r")
    assert one.latestOffset(second, ReadAllAvailable())["offsets"]["q"] == {"results": 4}
    # One that tells nothing has none; one that has joined is waited for.
    publish(tmp_path, 6)
    found = reader(tmp_path).latestOffset(everything, ReadAllAvailable())
    assert found == offset({"p": 3, "q": 6, "r": 1}, {"p": 30, "q": None, "r": 10})


def test_epochs_that_have_expired_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    for epoch in range(1, 6):
        publish(tmp_path, epoch, epoch)
    Manifest(tmp_path, "q", "results").expire(4, 0)
    one = reader(tmp_path)
    assert one.latestOffset(one.initialOffset(), ReadAllAvailable()) == offset({"q": 5}, {"q": 5})
    assert one.latestOffset(offset({"q": 3}, {"q": 3}), ReadAllAvailable()) == offset({"q": 5}, {"q": 5})
    with pytest.raises(SourceError, match="epochs 2 to 3 of query q have left the manifest before they were read"):
        one.latestOffset(offset({"q": 1}, {"q": 1}), ReadAllAvailable())


def test_a_directory_that_it_cannot_read_is_named(tmp_path: Path, spark: SparkSession) -> None:
    for given, message in (
        ({}, r'needs a directory: load\("…"\)'),
        ({"path": "s3a://b/out"}, "s3a://b/out is not a directory of this machine"),
        ({"path": str(tmp_path)}, r"no query has published an epoch in .* say which they are with schema\(…\)"),
        ({"path": str(tmp_path), "maxFilesPerTrigger": "1"}, '"maxFilesPerTrigger" is not an option'),
    ):
        with pytest.raises(AnalysisError, match=message):
            FilesDataSource(given).schema()
    sj.register_sources(spark)
    with pytest.raises(AnalysisException, match="no query has published an epoch"):
        spark.readStream.format("sparkjet-files").load(str(tmp_path))
    publish(tmp_path, 1, 5, form="orc")
    with pytest.raises(SourceError, match=r"epoch 1 in .* is orc; only Parquet can be read"):
        reader(tmp_path).latestOffset(offset({}, {}), ReadAllAvailable())


def test_columns_come_as_the_newest_epoch_has_them(spark: SparkSession, tmp_path: Path) -> None:
    def write(epoch: int, rows: DataFrame, *by: str) -> None:
        sink = FilesSink(tmp_path, partition_by=by)
        sink.check(rows.schema)
        handle = sink.prepare(rows, replace(transaction(epoch), watermark=epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)

    write(1, spark.sql("SELECT 1 AS n, DATE '2026-01-02' AS d"))
    full = "SELECT 5000000000L AS n, TIMESTAMP '2026-01-01 12:00:00.123456' AS ts, 'a b/c' AS k, DATE '2026-01-03' AS d"
    write(2, spark.sql(f"{full}, array(struct(1.5D AS x)) AS xs UNION ALL {full[:-23]}NULL, NULL"), "k", "d")
    found = FilesDataSource({"path": str(tmp_path)})
    one = found.streamReader(found.schema())
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    rows = [
        row
        for each in one.partitions(one.initialOffset(), end)
        for batch in one.read(each)
        for row in batch.to_pylist()
    ]
    noon = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)
    shown = sorted(((row["n"], row["ts"], row["k"], str(row["d"]), row["xs"]) for row in rows), key=str)
    assert shown == [
        (1, None, None, "2026-01-02", None),
        (5_000_000_000, noon, "a b/c", "2026-01-03", [{"x": 1.5}]),
        (5_000_000_000, noon, "a b/c", "None", None),
    ]
    (tmp_path / one.partitions(one.initialOffset(), end)[0].value.path).unlink()
    with pytest.raises(SourceError, match=r"is in the manifest, but is missing\. Restore the file"):
        list(one.read(one.partitions(one.initialOffset(), end)[0]))


@pytest.mark.parametrize("length", [300, pytest.param(50, marks=pytest.mark.long)])
def test_the_second_query_needs_no_lag_and_equals_spark_s_batch(
    spark: SparkSession, tmp_path: Path, length: int
) -> None:
    sj.register_sources(spark)
    sink = FilesSink(tmp_path / "ten", pace=Pace(1_000_000))
    first = StreamDriver(spark, per_ten_minutes, SCHEMA, sinks=[sink], directory=tmp_path / "first")

    def run() -> dict[str, Any]:
        rows = spark.readStream.format("sparkjet-files").load(str(tmp_path / "ten"))
        writer = per_hour(rows).writeStream.format("files").option("path", tmp_path / "out")
        query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        found: dict[str, Any] = query.lastProgress
        return found

    def written() -> Counter[tuple[Any, ...]]:
        rows = sj.read_files(str(tmp_path / "out")).select("hour", "k", "n", "v", "windows")
        return Counter(map(tuple, rows.collect()))

    def told() -> int:
        until = sj.complete_until(tmp_path / "ten").until
        assert until is not None
        return round(until.timestamp() * 1_000_000)

    chance, sent = random.Random(7), []
    for start in range(0, 300, length):
        batch = [(at(start + chance.uniform(0, length)), chance.choice("ab"), chance.randint(1, 9)) for _ in range(30)]
        sent += sorted(batch)
        first.process(sorted(batch))
        found = run()
        assert (found["watermark"], found["lateRows"]["total"]) == (told() - told() % HOUR, 0)
    # An epoch without rows: it is too soon to tell, and the end of the run tells it.
    nobody = [(at(500), "nobody", 1), (at(650), "nobody", 1)]
    first.process(nobody[:1])
    before, files, until = written().total(), len(list((tmp_path / "ten").glob("part-*"))), told()
    first.process(nobody[1:])
    assert told() == until
    first.stop()
    assert told() == until + 150 * 60_000_000
    assert len(list((tmp_path / "ten").glob("part-*"))) == files
    run()
    everything = spark.createDataFrame([*sent, *nobody], "ts string, k string, v long")
    assert written() == both_in_batch(everything.withColumn("ts", F.to_timestamp("ts")))
    assert written().total() > before
