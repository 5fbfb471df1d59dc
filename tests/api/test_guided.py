"""Attributes that do not exist: each of Spark's is answered with a way out that works, others with the nearest name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.ml.feature import StringIndexerModel
from pyspark.sql import DataFrame, GroupedData, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.api.grouped import GroupedStream, LateStream, WindowedStream
from sparkjet.api.guided import Guided
from sparkjet.api.stream import Stream
from sparkjet.api.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = re.compile(r"(?:\b(sj|F|rows|sparkjet\.functions)\.)?\b([A-Za-z_]+)(\()?")


@pytest.fixture
def stream(spark: SparkSession) -> Stream:
    source = spark.readStream.format("rate").load()
    return sj.stream(source).withWatermark("timestamp", "1 minute")


@pytest.fixture
def objects(stream: Stream) -> list[tuple[Any, type]]:
    """One of each kind with Spark's class of the same names."""
    grouped = stream.groupBy(sj.window("timestamp", "1 minute"))
    result = grouped.count()
    return [
        (stream, DataFrame),
        (grouped, GroupedData),
        (result, DataFrame),
        (result.lateRows, DataFrame),
        (result.writeStream, DataStreamWriter),
    ]


def exists(prefix: str | None, name: str) -> bool:
    """Whether a way out names something that there is."""
    if prefix == "sparkjet.functions":
        return name in J.__all__
    owners = {"sj": (sj,), "F": (F,), "rows": (DataFrame,)}
    ours = (Stream, GroupedStream, WindowedStream, LateStream, StreamWriter, sj)
    return any(hasattr(owner, name) for owner in owners.get(prefix or "", ours))


def test_each_public_name_of_sparks_has_a_way_out_that_works(objects: list[tuple[Any, type]]) -> None:
    refused = 0
    for ours, theirs in objects:
        for name in (name for name in dir(theirs) if not name.startswith("_")):
            if name in dir(type(ours)):
                continue
            assert not hasattr(ours, name)
            with pytest.raises(AttributeError) as missing:
                getattr(ours, name)
            start, _, way_out = str(missing.value).partition(". ")
            assert start == f"{type(ours).__name__} has no {name!r}"
            assert way_out, (ours, name)
            assert "Known:" not in way_out
            refused += 1
            for prefix, named, called in NAMED.findall(way_out):
                assert exists(prefix, named) or not (prefix or called), (name, prefix, named)
    assert refused > 240


@pytest.mark.parametrize(
    ("kind", "name", "way_out"),
    [
        (GroupedStream, "applyInPandas", "python_aggregate"),
        (GroupedStream, "writeStream", r"Call agg\(…\) first"),
        (StreamWriter, "clusterBy", "partitionBy"),
        (StreamWriter, "save", "called start"),
        (StreamWriter, "awaitTermination", r"the running query, which start\(…\) returns"),
        (StreamWriter, "triger", 'did you mean "trigger"'),
        (GroupedStream, "aggregate", 'did you mean "agg"'),
        (WindowedStream, "lateRow", 'did you mean "lateRows"'),
        (LateStream, "withWatermark", "already have"),
    ],
)
def test_a_way_out_names_what_to_use(objects: list[tuple[Any, type]], kind: type, name: str, way_out: str) -> None:
    (ours,) = (each for each, _ in objects if type(each) is kind)
    with pytest.raises(AttributeError, match=f"{kind.__name__} has no '{name}'.*{way_out}"):
        getattr(ours, name)


def test_what_takes_a_dataframe_is_told_that_it_got_a_stream(spark: SparkSession) -> None:
    items = spark.createDataFrame([(1, "tea"), (2, "salt")], "k int, item string")
    sold = spark.createDataFrame([(1, 3), (1, 4), (3, 1)], "k int, n int")
    stream = sj.stream(sold)
    model = StringIndexerModel.from_labels(["1", "3"], inputCol="k", outputCol="number", handleInvalid="keep")
    for called in (
        lambda: items.join(stream, "k"),  # type: ignore[arg-type]
        lambda: sold.union(stream),  # type: ignore[arg-type]
        lambda: F.broadcast(stream),  # type: ignore[type-var]
        lambda: model.transform(stream),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            AttributeError, match=r"Stream has no '_jdf'. What you called takes one of Spark's DataFrames.*b.join\(a\)"
        ):
            called()
    assert not hasattr(stream, "_jdf")
    joined = stream.join(F.broadcast(items), "k").select("k", "n", "item").toDF()
    assert sorted(map(tuple, joined.collect())) == [(1, 3, "tea"), (1, 4, "tea")]
    assert sj.stream(sold).union(stream).toDF().count() == 6
    assert sorted(row.number for row in sj.stream(model.transform(sold)).toDF().collect()) == [0.0, 0.0, 1.0]


def test_views_observed_rows_samples_and_totals_are_to_be_had_as_it_says(spark: SparkSession) -> None:
    sold = spark.range(100).selectExpr("id", "id % 2 AS a", "id % 3 AS b", "id AS n")
    stream = sj.stream(sold)
    for name, says in {
        "createOrReplaceTempView": r"Create it from the one that sj.stream\(…\) is given",
        "observe": r"Observe the DataFrame before sj.stream\(…\)",
        "sample": r"where\(F.rand\(\) < 0.1\)",
        "rollup": r"groupBy\(\"a\", \"b\"\)",
    }.items():
        with pytest.raises(AttributeError, match=says):
            getattr(stream, name)
    sold.createOrReplaceTempView("sold_here")
    assert sj.stream(spark.sql("SELECT a, n FROM sold_here WHERE n < 5")).toDF().count() == 5
    assert 0 <= stream.where(F.rand() < 0.1).toDF().count() < 60
    chosen = stream.where(F.pmod(F.hash("id"), F.lit(10)) == 0).toDF()
    assert chosen.collect() == sold.where(F.pmod(F.hash("id"), F.lit(10)) == 0).collect()
    assert 0 < chosen.count() < 40
    totals = stream.groupBy("a", "b").agg(F.sum("n").alias("n")).rollup("a", "b").agg(F.sum("n"))
    assert sorted(map(str, totals.toDF().collect())) == sorted(
        map(str, sold.rollup("a", "b").agg(F.sum("n")).collect())
    )
    seen = Observation()
    assert sj.stream(sold.observe(seen, F.count(F.lit(1)).alias("rows"))).toDF().count() == 100
    assert seen.get == {"rows": 100}


def test_a_property_that_fails_says_why() -> None:
    class Broken(Guided):
        @property
        def rows(self) -> int:
            raise AttributeError("the cause")

    with pytest.raises(AttributeError, match=r"^the cause$"):
        _ = Broken().rows


def test_private_names_are_refused_without_the_object() -> None:
    with pytest.raises(AttributeError, match=r"^Stream has no '_chain'$"):
        _ = object.__new__(Stream)._chain
