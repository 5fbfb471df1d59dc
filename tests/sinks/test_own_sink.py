"""A user's own sink: the contract of all sinks, and a query that writes to it and crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.sinks import Guarantee, Handle, TransactionId, Unknown
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest
from tests.feed import Feed, rows
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.api.writer import StreamWriter


@dataclass
class JsonSink:
    """One file per epoch: written to a staging directory, moved into place by the commit."""

    directory: Path
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE

    def check(self, schema: StructType) -> None:
        """Reject what the files cannot store."""
        if "window" in schema.fieldNames():
            raise sj.AnalysisError("JsonSink: no windows, please")

    def create(self) -> None:
        """Create the directories."""
        (self.directory / "prepared").mkdir(parents=True, exist_ok=True)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Write."""
        found = [list(row) for row in rows.collect()]
        if not found:
            return None
        name = f"{transaction}.json"
        (self.directory / "prepared" / name).write_text(json.dumps(found))
        return {"name": name}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Move; a file that is already there was committed before."""
        if not (self.directory / handle["name"]).exists():
            shutil.move(self.directory / "prepared" / handle["name"], self.directory / handle["name"])
        between()

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Unknown:
        """Nothing is looked up."""
        return Unknown.UNKNOWN

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Remove what earlier drivers prepared."""
        decided = {handle["name"] for handle in keep}
        for path in (self.directory / "prepared").iterdir():
            if path.name not in decided and int(path.name.partition("-")[0]) < takeover:
                path.unlink()

    def seen(self) -> list[tuple[str, int]]:
        """The rows that a reader finds."""
        return [tuple(row) for path in sorted(self.directory.glob("*.json")) for row in json.loads(path.read_text())]

    def waiting(self) -> int:
        """Number of transactions that have not ended."""
        return len(list((self.directory / "prepared").iterdir()))


class TestContract(SinkContract):
    @pytest.fixture
    def target(self, spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
        sink = JsonSink(tmp_path / "out")
        sink.check(spark.createDataFrame([], SCHEMA).schema)
        sink.create()
        return SinkUnderTest(sink, sink.seen, sink.waiting)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(tmp_path / "in")
    for batch in range(4):
        feed.add(*rows([10 * batch, 10 * batch + 1], k="a", v=batch), *rows([10 * batch + 2], k="b", v=batch))
    return feed


def homeless(spark: SparkSession, feed: Feed) -> StreamWriter:
    counted = (
        sj.stream(feed.read(spark))
        .withWatermark("ts", "0 seconds")
        .groupBy(sj.window("ts", "10 seconds"), "k")
        .agg(F.count("*").alias("n"))
    )
    return counted.select("k", "n").writeStream.option("closeWindowsAtEnd", True).trigger(availableNow=True)


def writer(spark: SparkSession, feed: Feed, home: Path) -> StreamWriter:
    return homeless(spark, feed).option("checkpointLocation", home / "ck")


STEPS = [sj.EpochPhase.PREPARE, sj.EpochPhase.DECIDE, sj.EpochPhase.COMMIT]


@pytest.mark.parametrize("step", mostly_crash(STEPS, quick=(), crash={sj.EpochPhase.PREPARE, sj.EpochPhase.COMMIT}))
def test_a_query_into_it_publishes_every_row_once_although_it_fails(
    spark: SparkSession, feed: Feed, tmp_path: Path, step: sj.EpochPhase
) -> None:
    sink = JsonSink(tmp_path / "out")

    def fail(at: sj.EpochPhase, epoch: int) -> None:
        if (at, epoch) == (step, 3):
            raise OSError("struck")

    query = writer(spark, feed, tmp_path).format(sink).onEpochPhase(fail).start()
    assert query.guarantees == {"results": "exactly-once"}
    with pytest.raises(Exception, match="struck"):
        query.awaitTermination()
    again = JsonSink(tmp_path / "out")
    writer(spark, feed, tmp_path).format(again).start().awaitTermination()
    assert sorted(again.seen()) == [("a", 2)] * 4 + [("b", 1)] * 4
    assert again.waiting() == 0


def test_it_is_checked_like_every_sink_and_creates_nothing_before_all_have_been(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    own = writer(spark, feed, tmp_path).format(JsonSink(tmp_path / "out"))
    own.option("lateRowsPath", "/proc/nowhere")
    with pytest.raises(sj.AnalysisError, match="lateRowsPath"):
        own.start()
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "ck").exists()


def test_it_takes_no_options_of_other_sinks_and_needs_a_home(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    chosen = writer(spark, feed, tmp_path).format(JsonSink(tmp_path / "out"))
    with pytest.raises(sj.AnalysisError, match=r'"numRows" is not an option of format\("JsonSink"\)'):
        chosen.option("numRows", 3).start()
    with pytest.raises(sj.AnalysisError, match="checkpointLocation"):
        homeless(spark, feed).format(JsonSink(tmp_path / "out")).start()


def test_an_object_that_is_not_a_sink_is_refused_by_what_it_lacks_and_one_sink_twice_too(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    chosen = writer(spark, feed, tmp_path)
    with pytest.raises(sj.AnalysisError, match="Path is not a sink, it has no 'guarantee'"):
        chosen.format(tmp_path)  # type: ignore[arg-type]
    sink = JsonSink(tmp_path / "out")
    with pytest.raises(sj.AnalysisError, match="the same sink object"):
        sj.start(chosen.format(sink), chosen.format(sink))
