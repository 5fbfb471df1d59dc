"""Spark's row-by-row methods on streams and results: what Spark gives on a batch, also on rows that a filter marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.stream import Stream
from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from sparkjet.testing.stream_driver import StreamDriver
from tests.together import all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, v long, d double, `a.b` string, s struct<x: int>"
ROWS = [
    ("7", 1, 1.5, "a", (1,)),
    ("8", None, float("nan"), None, (None,)),
    (None, 2, None, "b", None),
    (None, None, None, None, None),
    # The filter drops it: no expression below may be computed of it.
    ("not a number", 13, 0.0, "c", (0,)),
]

Shape = Callable[[Any], Any]


def double(rows: Any, column: str, *, by: int) -> Any:
    return rows.withColumn(column, rows[column] * by)


LIKE_SPARK: dict[str, Shape] = {
    "selectExpr": lambda rows: rows.selectExpr("*", "int(k) AS n", "v + 1", "1 / d AS inverse"),
    "selectExpr of a list": lambda rows: rows.selectExpr(["`a.b`", "int(k)"]),
    "select of a list": lambda rows: rows.select(["v", F.col("k").cast("int")]),
    "struct.*": lambda rows: rows.select("s.x", rows.s.x.alias("y"), (rows["s.x"] + 1).alias("z")),
    "withColumns": lambda rows: rows.withColumns({"n": rows.k.cast("int"), "v": rows["v"] + 1}),
    "withColumnRenamed": lambda rows: rows.withColumnRenamed("k", "key").withColumnRenamed("nothing", "some"),
    "withColumnsRenamed": lambda rows: rows.withColumnsRenamed({"v": "w", "d": "e"}).where("w > 0"),
    # Of all columns without that dot: Spark's own fails on its name.
    "dropna": lambda rows: rows.drop("a.b").dropna(),
    "dropna of all": lambda rows: rows.drop("a.b").dropna("all"),
    "dropna by count": lambda rows: rows.drop("a.b").na.drop(thresh=3).na.drop("any", None, ["v"]),
    "dropna of a subset": lambda rows: rows.dropna(subset=("d", "`a.b`")).dropna(subset="k"),
    "fillna": lambda rows: rows.fillna(0).fillna("none"),
    "fillna of a subset": lambda rows: (
        rows.na.fill(3, ["v"]).fillna({"k": "5", "d": 0.5}).selectExpr("int(k)", "1 / d")
    ),
    "replace": lambda rows: rows.replace("7", "70").replace([1, 2], [10, 20], ["v"]),
    "replace by null": lambda rows: rows.replace("7", None).na.replace({1: None}, subset="v"),
    "transform": lambda rows: rows.transform(double, "v", by=2),
    "alias": lambda rows: (
        rows.alias("e").where("e.v > 0").select("e.*", F.col("e.k"), F.col("e.v") + 1).where("e.v > 1")
    ),
    "number": lambda rows: rows[rows[1] > 0][["k", "v"]],
    "distribution": lambda rows: rows.repartition(3).repartition("k").repartition(2, "k").coalesce(1).hint("rebalance"),
}


@pytest.fixture
def batch(spark: SparkSession) -> DataFrame:
    # Otherwise a Python process would make the rows again for each query.
    return spark.createDataFrame(ROWS, SCHEMA).localCheckpoint()


@pytest.fixture
def stream(batch: DataFrame) -> Stream:
    """A stream whose chain can be run on a batch."""
    source = batch.withColumns({TIME: F.when(F.col("v").isNotNull(), 1).cast("long"), SUBSTREAM: F.lit("all")})
    return Stream(Feed(Transformations(source, source)))


def found(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


def test_a_stream_gives_what_a_dataframe_gives(batch: DataFrame, stream: Stream) -> None:
    frames: dict[tuple[str, str], DataFrame] = {}
    for name, shape in LIKE_SPARK.items():
        expected = shape(batch.where("v IS NULL OR v <> 13"))
        shaped = shape(stream.where("v IS NULL OR v <> 13"))
        chain = shaped._chain
        assert (shaped.columns, shaped.dtypes) == (expected.columns, expected.dtypes), name
        assert chain.markable, name
        marked = chain.marked(chain.source)
        frames |= {
            (name, "expected"): expected,
            (name, "applied"): chain.apply(chain.source).drop(*HIDDEN),
            (name, "kept"): marked.where(KEPT).drop(*HIDDEN),
            (name, "times"): marked.select(TIME),
        }
    rows = all_rows(frames)
    untimed = sum(1 for row in ROWS if row[1] is None)
    for name in LIKE_SPARK:
        assert rows[name, "applied"] == rows[name, "kept"] == rows[name, "expected"], name
        times = rows[name, "times"]
        assert len(times) == len(ROWS), name
        assert sum("null" in time for time in times) == untimed, f"{name}: nulls of the user's columns only are filled"


def test_nulls_are_dropped_whatever_the_columns_are_called(stream: Stream) -> None:
    chain = stream.dropna()._chain
    assert found(chain.apply(chain.source).select("k", "`a.b`")) == [
        "Row(k='7', a.b='a')",
        "Row(k='not a number', a.b='c')",
    ]


def test_an_expression_of_a_repartition_is_not_computed_of_dropped_rows(stream: Stream) -> None:
    assert stream.repartition(2, F.col("v"))._chain.markable
    assert not stream.where("v > 1").repartition(2, F.lit(1) / F.col("v"))._chain.markable


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Stream:
    return sj.stream(spark.readStream.schema("ts timestamp, k string, v long").json(str(tmp_path)))


def passed(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def test_rebuilt_rows_no_longer_have_a_time(events: Stream) -> None:
    for remade in (
        events.mapInPandas(passed, events.schema),
        events.mapInArrow(passed, events.schema, False, None),
        events.unpivot(["ts", "k"], ["v"], "name", "value"),
        events.melt(["ts", "k"], "v", "name", "value"),
    ):
        counted = remade.withWatermark("ts", "1 minute").groupby([sj.window("ts", "1 minute"), "k"]).count()
        assert counted.columns == ["window", "k", "count"]
        listed = counted.melt("k", "count", "name", "value")
        assert listed.where("value > 1").select("k").columns == ["k"]
        with pytest.raises(sj.AnalysisError, match="Group first"):
            listed.groupBy(sj.window("window", "1 hour"))
        with pytest.raises(sj.AnalysisError, match="is used by sparkjet"):
            counted.mapInPandas(passed, f"k string, {TIME} long")


def test_a_stream_describes_itself_like_a_dataframe(events: Stream) -> None:
    assert events.isStreaming
    assert events.dtypes == [("ts", "timestamp"), ("k", "string"), ("v", "bigint")]
    assert [str(events.ts), str(events["ts"]), str(events[0]), str(events[-1])] == ["Column<'ts'>"] * 3 + [
        "Column<'v'>"
    ]
    other = events.withWatermark("ts", "1 second")
    assert other.alias("a").unionAll(other.alias("b")).columns == events.columns


def test_results_are_shaped_to_the_last_step(spark: SparkSession) -> None:
    def query(rows: Stream) -> Any:
        kept = rows.alias("e").withWatermark("ts", "2 seconds").where("e.v > 0").select("e.ts", F.col("e.k")).dropna()
        result = kept.groupby([sj.window("ts", "10 seconds"), "k"]).count().alias("r")
        renamed = result.select(result.window.start.alias("start"), "r.k", "count").withColumnRenamed("count", "n")
        return renamed.mapInPandas(passed, "start timestamp, k string, n long").fillna("none")

    driver = StreamDriver(spark, query, "ts timestamp, k string, v long")
    driver.process([(f"2026-01-01 12:00:0{second}", k, second) for second, k in enumerate(["a", "a", None, "a", "b"])])
    # Filtered out, and yet it advances the watermark.
    driver.process([("2026-01-01 12:00:12", "late", 0)])
    assert sorted((str(row.start), row.k, row.n) for row in driver.results()) == [
        ("2026-01-01 12:00:00", "a", 2),
        ("2026-01-01 12:00:00", "b", 1),
    ]
    assert not driver.plan.persisted
