"""Windows of a Spark query are rebuilt from the rows since they began: each result once, as Spark's own goes on."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import AnalysisError
from tests.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark
LISTED = "_spark_metadata"


class Windows:
    """A query of Spark's with sliding windows, in append mode, into files."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.feed = spark, place, Feed(place / "in")

    def add(self, *times: int) -> None:
        self.feed.add(*({"t": time, "k": f"k{time % 2}", "v": 1} for time in times))

    def results(self, rows: DataFrame) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in rows.selectExpr("cast(window.end AS long)", "k", "n", "ids").collect())

    def of_spark(self, checkpoint: str, out: str) -> None:
        window = F.window("ts", "20 seconds", "10 seconds")
        stream = self.feed.read(self.spark).withWatermark("ts", "10 seconds").groupBy(window, "k").agg(*aggregates())
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(self.place / checkpoint))
        writer.trigger(availableNow=True).start(str(self.place / out)).awaitTermination()

    def run(self, **options: Any) -> None:
        stream = sj.stream(self.feed.read(self.spark)).withWatermark("ts", "10 seconds")
        windows = stream.groupBy(sj.window("ts", "20 seconds", "10 seconds"), "k").agg(*aggregates())
        usual = {"path": self.place / "out", "checkpointLocation": self.place / "home", "adopt": self.place / "old"}
        writer = windows.writeStream.format("parquet").options(**{**usual, **options})
        writer.trigger(availableNow=True).start().awaitTermination()

    def copied(self) -> None:
        """Spark's query goes on from a copy, for comparison."""
        for name in ("old", "out"):
            shutil.copytree(self.place / name, self.place / f"their-{name}")
        for entry in (self.place / "their-out" / LISTED).iterdir():
            if not entry.name.startswith("."):
                # The end of the path alone: it is percent-encoded.
                entry.write_text(entry.read_text().replace("/out/part-", "/their-out/part-"))
                (entry.parent / f".{entry.name}.crc").unlink(missing_ok=True)

    def check(self) -> None:
        self.of_spark("their-old", "their-out")
        theirs, ours = (self.spark.read.parquet(str(self.place / name)) for name in ("their-out", "out"))
        expected = self.results(theirs)
        assert expected
        assert self.results(ours) == expected


def aggregates() -> tuple[Column, ...]:
    return F.sum("v").alias("n"), F.sum("id").alias("ids")


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12))])
def test_results_go_on_as_sparks_own_would(spark: SparkSession, tmp_path: Path, seed: int | None) -> None:
    """With rows out of order, within a batch and across; over a directory of Spark's file sink."""
    case = Windows(spark, tmp_path)
    if seed is None:
        for times in ((1, 3), (40, 12), (61, 33, 75, 52, 70), (64, 58, 95, 66)):
            case.add(*times)
    else:
        given = random.Random(seed)
        for _ in range(given.randrange(1, 7)):
            latest = given.randrange(100)
            case.add(*(max(0, latest - given.randrange(30)) for _ in range(given.randrange(1, 9))))
    case.of_spark("old", "out")
    case.copied()
    with pytest.raises(
        sj.AnalysisError, match=r"has state of .*: stateStoreSave \(0\)\. .* rebuilt from the rows of \d+ files"
    ):
        case.run()
    case.run(adoptReplay=True)
    for start in (200, 260, 500):
        case.add(start, start + 12, start + 5)
    case.run(adoptReplay=True)
    case.check()


def test_it_reads_from_where_the_oldest_open_window_began(spark: SparkSession, tmp_path: Path) -> None:
    """Other refusals name their cause, and change nothing."""
    case = Windows(spark, tmp_path)
    for start in range(0, 200, 20):
        case.add(start, start + 15)
    case.of_spark("old", "out")
    with pytest.raises(sj.AnalysisError, match=r"rebuilt from the rows of 2 files") as caught:
        case.run()
    assert 'option("adoptReplay", "true")' in str(caught.value)

    def refused(change: Callable[[Path], None], told: str, **options: Any) -> None:
        old = tmp_path / "changed"
        shutil.copytree(tmp_path / "old", old)
        change(old)
        with pytest.raises(sj.AnalysisError, match=told):
            case.run(**{"adopt": old, "adoptReplay": True, **options})
        assert not (tmp_path / "home" / "snapshots").exists()
        shutil.rmtree(old)

    def purged(old: Path) -> None:
        for number in range(8):
            (old / "offsets" / str(number)).unlink()

    def undescribed(old: Path) -> None:
        (old / "state" / "0" / "0" / "_metadata" / "schema").unlink()

    def without_time(old: Path) -> None:
        schema = old / "state" / "0" / "0" / "_metadata" / "schema"
        schema.write_bytes(schema.read_bytes().replace(b"timeWindow", b"otherwise!"[:10]))

    last = max(int(path.name) for path in (tmp_path / "old" / "commits").iterdir() if path.name.isdecimal())
    refused(lambda old: (old / "commits" / f"{last}").unlink(), rf"batch {last} is planned and not committed")
    refused(purged, r"Spark's log of offsets does not go back there: its oldest batch is 8.*minBatchesToRetain")
    refused(undescribed, "the schema of its state cannot be read")
    refused(without_time, "its state is not of one window with a watermark")
    more = json.dumps({"operatorInfo": {"operatorName": "dedupe"}})

    def several(old: Path) -> None:
        (old / "state" / "1" / "_metadata").mkdir(parents=True)
        (old / "state" / "1" / "_metadata" / "metadata").write_text(f"v1\n{more}")

    refused(several, r"has state of operators, .*: stateStoreSave \(0\), dedupe \(1\)\. Start")
    refused(lambda _: None, "adoptReplay: windows are rebuilt after a checkpoint", adopt=None)


def test_missing_files_of_open_windows_are_reported_before_anything_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's reader would leave them out, and the windows would lack their rows."""
    case = Windows(spark, tmp_path)
    for times in ((1, 2, 5), (12, 14)):
        case.add(*times)
        case.of_spark("old", "out")
    before = sorted(path.name for path in (tmp_path / "old" / "offsets").iterdir())
    oldest, *_ = sorted(path for path in (tmp_path / "in").iterdir() if not path.name.startswith("."))
    content = oldest.read_bytes()
    oldest.unlink()
    with pytest.raises(AnalysisError, match=rf"files with rows of open windows are gone: 1, such as .*{oldest.name}"):
        case.run(adoptReplay="true")
    assert sorted(path.name for path in (tmp_path / "old" / "offsets").iterdir()) == before
    oldest.write_bytes(content)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(AnalysisError, match="ignoreMissingFiles is true"):
            case.run(adoptReplay="true")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
