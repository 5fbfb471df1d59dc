"""State as its users see it: the rows of each operator against Spark's batch over the rows that were read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

import sparkjet as sj
from sparkjet.errors import AnalysisError, RecoveryError
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.query import StreamingQuery

pytestmark = pytest.mark.interpreted

SLIDING, SESSIONS, TUMBLING, TOTALS, KEYS, PAIRS, SEEN, VISITS = (
    "sliding",
    "sessions",
    "tumbling",
    "totals",
    "keys",
    "pairs",
    "seen",
    "visits",
)


def seen(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    count = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((count,))
    yield pd.DataFrame({"n": [count]})


class Visits(StatefulProcessor):
    """A variable of each kind, one of them with a TTL, and a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "v long")
        self.all = handle.getListState("all", "v long")
        self.by = handle.getMapState("by", "p string", "n long")
        self.brief = handle.getValueState("brief", "v long", ttlDurationMs=1)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.v,))
            self.brief.update((row.v,))
            self.all.appendValue((row.v,))
            self.by.updateValue((row.p,), (row.v,))
        self.handle.registerTimer(4_000_000_000_000)
        yield Row(k=key[0])

    def close(self) -> None:
        pass


def writers(spark: SparkSession, feed: Feed, other: Feed) -> list[Any]:
    """An operator of each kind."""
    events = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").alias("e")
    answers = sj.stream(other.read(spark)).withWatermark("ts", "5 seconds").select(
        F.col("ts").alias("at"), F.col("k").alias("answered"), "v"
    )
    median = [F.sum("v").alias("sum"), F.expr("percentile(v, 0.5)").alias("median"), F.collect_list("p").alias("ps")]
    ratio = (F.sum("v") / F.count("*")).alias("ratio")
    windows = [
        events.groupBy(sj.window("ts", "20 seconds", "10 seconds"), "k").agg(F.sum("v").alias("sum"), ratio),
        events.groupBy("k", F.session_window("ts", "7 seconds").alias("s")).agg(*median),
        events.groupBy(F.window("ts", "10 seconds").alias("w"), F.upper("k").alias("K")).agg(
            (F.max("ts") - F.col("w.start")).alias("into"), F.approx_count_distinct("p").alias("ps")
        ),
    ]
    rolling = events.groupBy("k").agg(F.avg("v").alias("mean"), F.min("ts").alias("first")).writeStream
    joined = events.select("ts", "k", "p").join(answers, F.expr("k = answered AND at BETWEEN ts AND ts + INTERVAL 1 MINUTE"))
    functions = [
        events.groupBy("k").applyInPandasWithState(seen, "n long", "n long", "update", "NoTimeout"),
        events.groupBy("k").transformWithState(Visits(), "k string", "append", "ProcessingTime"),
    ]
    rest = [events.dropDuplicates(["k", "j"]), joined, *functions]
    plain = [each.writeStream for each in (*windows, *rest)]
    return [each.format("noop").trigger(availableNow=True) for each in (*plain, rolling.outputMode("update"))]


def run(spark: SparkSession, place: Path, feed: Feed, other: Feed) -> StreamingQuery:
    query = sj.start(*writers(spark, feed, other), checkpointLocation=str(place / "home"))
    query.awaitTermination()
    return query


def test_it(spark: SparkSession, tmp_path: Path) -> None:
    feed, other = Feed(tmp_path / "in"), Feed(tmp_path / "other")
    feed.add(*rows([1, 2, 12], k="a", j=1, v=1, p="x"), *rows([3], k="b", j=2, v=2, p="y"))
    other.add(*rows([2, 13], k="a", v=7))
    run(spark, tmp_path, feed, other)
    from sparkjet.engine.state_reader import StateReader
    from sparkjet.snapshots import DirectoryStore

    reader = StateReader(__import__("sparkjet.storage.schemes", fromlist=["x"]).directory_at(str(tmp_path / "home"), "home", lambda: spark))
    print(reader.operators)
    print(reader.record.encode().decode())
    for name in reader.operators:
        frame = sj.read_state(tmp_path / "home", name)
        frame.printSchema()
        frame.show(truncate=False)
    assert 0


def test_source(spark: SparkSession, tmp_path: Path) -> None:
    feed, other = Feed(tmp_path / "in"), Feed(tmp_path / "other")
    feed.add(*rows([1, 2, 12], k="a", j=1, v=1, p="x"), *rows([3], k="b", j=2, v=2, p="y"))
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds").groupBy(sj.window("ts", "10 seconds"), "k")
    stream.agg(sj.functions.top_n("v", 2).alias("top")).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "home")).trigger(availableNow=True).start().awaitTermination()
    sj.register_sources(spark)
    frame = spark.read.format("sparkjet-state").load(str(tmp_path / "home"))
    frame.show(truncate=False)
    assert sj.read_state(tmp_path / "home").collect() == frame.collect()
    spark.read.format("sparkjet-state").option("operatorId", "x").load(str(tmp_path / "home"))
