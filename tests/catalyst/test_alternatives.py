"""The way out of a refusal works: no two refusals send a user back and forth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.row_by_row import REFUSED
from tests.lines import needs_indices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream
SCHEMA = "ts timestamp, k string, v long"
METHODS = sorted(name for name in dir(DataFrame) if not name.startswith("_"))
BEFORE = "before sj.stream"


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(tmp_path))


@pytest.fixture
def stream(df: DataFrame) -> Stream:
    return sj.stream(df).withWatermark("ts", "1 minute")


@pytest.fixture
def results(stream: Stream) -> WindowedStream:
    return stream.groupBy(sj.window("ts", "1 minute"), "k").count()


def static(df: DataFrame) -> DataFrame:
    return df.sparkSession.sql("SELECT 'a' AS k, 1 AS extra")


DONE_BEFORE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "colRegex": lambda df: df.select("ts", df.colRegex("`k|v`")),
    "lateralJoin": lambda df: df.lateralJoin(static(df)),
    "metadataColumn": lambda df: df.select("*", df.metadataColumn("_metadata")),
    "observe": lambda df: df.observe("seen", F.count(F.lit(1)).alias("rows")),
    "repartitionById": lambda df: df.repartitionById(2, F.col("v").cast("int")),
    "repartitionByRange": lambda df: df.repartitionByRange(2, "v"),
    "sampleBy": lambda df: df.sampleBy("k", {"a": 0.5}),
    "to": lambda df: df.to(df.schema),
    "withMetadata": lambda df: df.withMetadata("k", {"unit": "m"}),
}


def sent_away(rows: Any, method: str) -> str | None:
    """The message that refuses a method; None if the method exists."""
    try:
        getattr(rows, method)
    except AttributeError as error:
        return str(error)
    return None


def test_each_way_out_before_the_stream_works(df: DataFrame, stream: Stream) -> None:
    said = {method for method in METHODS if BEFORE in (sent_away(stream, method) or "")}
    assert said == DONE_BEFORE.keys() & set(METHODS)
    for method in said:
        shaped = DONE_BEFORE[method](df)
        assert sj.stream(shaped).columns == shaped.columns, method


def test_every_method_of_a_dataframe_has_a_way_out(stream: Stream, results: WindowedStream) -> None:
    for rows in (stream, results, results.lateRows):
        refused = {method: sent_away(rows, method) for method in METHODS}
        assert not [method for method, said in refused.items() if said is not None and "Known:" in said]
    for rows in (results, results.lateRows):
        assert not [method for method in METHODS if BEFORE in (sent_away(rows, method) or "")]


def test_what_is_refused_before_the_stream_is_not_sent_after_it_to_be_sent_back(stream: Stream) -> None:
    """A way out names methods of the stream only where the stream has them."""
    assert stream.withWatermark
    assert stream.groupBy
    assert stream.dropDuplicates
    assert stream.groupBy("k").applyInPandasWithState
    assert stream.join
    now = {alternatives.DUPLICATES, alternatives.STATE, alternatives.STREAM_JOIN}
    behind = {alternatives.WATERMARK, alternatives.AGGREGATION} | now
    for node, (_, way_out) in REFUSED.items():
        assert ("after sj.stream" in way_out) == (way_out in behind), node
        assert "Call sj.stream(…) before" not in way_out, node


@pytest.mark.parametrize(
    ("refused", "method"),
    [
        (lambda df: df.limit(3), "limit"),
        (lambda df: df.offset(3), "offset"),
        (lambda df: df.orderBy("v"), "orderBy"),
        pytest.param(lambda df: df.zipWithIndex(), "zipWithIndex", marks=needs_indices),
        (lambda df: df.select("k").subtract(df.sparkSession.sql("SELECT 'a' AS k")), "subtract"),
    ],
)
def test_both_sides_name_the_same_way_out(
    df: DataFrame, stream: Stream, refused: Callable[[DataFrame], DataFrame], method: str
) -> None:
    with pytest.raises(sj.AnalysisError) as before:
        sj.stream(refused(df))
    behind = sent_away(stream, method)
    way_out = alternatives.STREAMS.get(method)
    assert way_out is not None
    assert behind is not None
    assert str(before.value).endswith(way_out)
    assert behind.endswith(way_out)


def test_a_stream_stream_join_is_not_sent_round(df: DataFrame, stream: Stream) -> None:
    with pytest.raises(sj.AnalysisError) as before:
        sj.stream(df.alias("a").join(df.alias("b"), "k"))
    assert str(before.value).endswith(alternatives.STREAM_JOIN)
    with pytest.raises(sj.AnalysisError) as behind:
        stream.join(df, "k")
    assert str(behind.value).endswith(alternatives.STREAM_JOIN)
    assert stream.join(sj.stream(df).withWatermark("ts", "1 minute"), ["k", "ts"]).columns == ["k", "ts", "v", "v"]


def test_the_ways_out_by_static_joins_work(df: DataFrame, stream: Stream, results: WindowedStream) -> None:
    for how in ("left_semi", "left_anti"):
        assert stream.join(static(df), "k", how).columns == ["k", "ts", "v"]
        assert results.join(static(df), "k", how).columns == ["k", "window", "count"]


def test_the_ways_out_by_windows_work(stream: Stream) -> None:
    firsts = stream.groupBy(sj.window("ts", "1 minute"), "k").agg(F.first("v").alias("v"))
    assert firsts.columns == ["window", "k", "v"]
    listed = stream.groupBy(sj.window("ts", "1 minute")).agg(J.top_n("v", 3), J.bottom_n("v", 3))
    assert listed.columns == ["window", "top_n(v, 3)", "bottom_n(v, 3)"]


def test_a_column_with_the_name_of_a_refused_method_is_named(stream: Stream) -> None:
    counted = stream.withColumn("count", F.col("v"))
    with pytest.raises(
        AttributeError, match=r"no 'count'\. It needs all rows.* The column of this name is F.col\(\"count\"\)"
    ):
        _ = counted.count
    with pytest.raises(AttributeError, match=r"no 'wher'; did you mean \"where\""):
        _ = stream.wher
