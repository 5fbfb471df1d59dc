"""Joins with a static table: what Spark gives on a batch, also on rows that a filter or the join itself marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.stream import Stream
from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from tests.parameters import mostly_long
from tests.together import all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [
    (1, "a", "7", 10),
    (2, "b", "8", 20),
    (3, "b", None, 30),
    (4, None, "7", None),
    (5, "nowhere", "9", 50),
    # The filter drops it: no expression below may be computed of it.
    (13, "a", "not a number", 60),
]
TABLE = [("a", 7, "first"), ("a", 8, "second"), ("b", 8, None), (None, 7, "null"), ("unused", 1, "unused")]

Joined = Callable[[Any, Any], Any]

JOINS: dict[str, Joined] = {
    "by a name": lambda rows, table: rows.join(table, "k"),
    "by names": lambda rows, table: rows.join(table.withColumnRenamed("n", "v"), ["k", "v"]),
    "left": lambda rows, table: rows.join(table, "k", "left"),
    "left_outer": lambda rows, table: rows.join(table, ["k"], how="left_outer"),
    "leftouter with a hint": lambda rows, table: rows.join(F.broadcast(table), ["k"], "leftouter"),
    "left_semi": lambda rows, table: rows.join(table, "k", "left_semi"),
    "left_anti": lambda rows, table: rows.join(table, "k", "leftanti"),
    "semi and anti": lambda rows, table: rows.join(table, "k", "semi").join(table.where("n = 7"), "k", "anti"),
    "cross": lambda rows, table: rows.crossJoin(table.where("n = 7").select("word")),
    "without a condition": lambda rows, table: rows.join(table.select("word").limit(2)),
    "cross by how": lambda rows, table: rows.join(table.select("n", "word"), how="cross"),
    "of table and row": lambda rows, table: rows.join(table, rows.k == table.k).drop(table.k),
    "of row and table, left": lambda rows, table: rows.join(table, table.k == rows["k"], "left").drop(table["k"]),
    "several conditions": lambda rows, table: rows.join(
        table.withColumnRenamed("k", "key"), [F.col("k") == F.col("key"), F.col("id") < F.col("n")]
    ),
    "an unequal condition": lambda rows, table: rows.join(table.select("n"), F.expr("id * 3 >= n - 1"), "left"),
    "an alias": lambda rows, table: (
        rows.alias("r").join(table.alias("t"), F.expr("r.k = t.k AND r.id <> 2"), "left").select("r.*", "t.word")
    ),
    "null-safe": lambda rows, table: rows.join(table, rows.k.eqNullSafe(table.k)).select("id", "word"),
    "a cast that may fail": lambda rows, table: rows.join(table.select("n"), rows.text == table.n),
    "a cast that may fail, left": lambda rows, table: rows.join(table.select("n"), rows.text == table.n, "left"),
    "twice": lambda rows, table: (
        rows.join(table.where("n = 7").drop("n"), "k", "left").join(table.select("k", "n"), "k").where("n > 7")
    ),
    "a cast that may fail afterwards": lambda rows, table: (
        rows.join(table, "k").where("word IS NOT NULL").withColumn("text", F.col("text").cast("int") + 1)
    ),
    "then exploded": lambda rows, table: rows.join(table, "k").select("id", F.explode(F.array("n", "v")).alias("e")),
}


def local(spark: SparkSession, rows: list[Any], schema: str) -> DataFrame:
    """A DataFrame whose rows are not made by Python each time."""
    return spark.createDataFrame(rows, schema).localCheckpoint()


@pytest.fixture(scope="module")
def batch(spark: SparkSession) -> DataFrame:
    return local(spark, ROWS, "id int, k string, text string, v int")


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return local(spark, TABLE, "k string, n int, word string")


@pytest.fixture
def stream(batch: DataFrame) -> Stream:
    """A stream whose chain can be run on a batch."""
    source = batch.withColumns({TIME: F.when(F.col("v").isNotNull(), 1).cast("long"), SUBSTREAM: F.lit("all")})
    return Stream(Feed(Transformations(source, source)))


def found(rows: DataFrame) -> list[str]:
    return sorted(map(str, rows.collect()))


BOTH = {"by a name", "left", "left_semi", "without a condition", "of table and row", "an unequal condition", "twice"}
CASES = [*((name, True) for name in JOINS), *((name, False) for name in JOINS if name in BOTH)]
# Without a filter before, one that is marked only then; the fuzzer joins tables without one too.
OFTEN = [each for each in CASES if each[1] or each[0] == "an unequal condition"]
NEVER = {"left_semi", "left_anti", "semi and anti", "then exploded"}
"""Joins whose rows are never marked."""
OF_MARKED = {"an unequal condition", "a cast that may fail", "a cast that may fail, left"}
"""Nor these after a filter: the condition would be computed of a marked row."""


@pytest.mark.parametrize("cases", mostly_long({"often": OFTEN, "all": CASES}, ["often"]))
def test_a_stream_gives_what_a_dataframe_gives(
    batch: DataFrame, stream: Stream, table: DataFrame, cases: list[tuple[str, bool]]
) -> None:
    frames: dict[tuple[str, bool, str], DataFrame] = {}
    for name, filtered in cases:
        condition = "id <> 13" if filtered else "true"
        expected = JOINS[name](batch.where(condition), table)
        shaped = JOINS[name](stream.where(condition) if filtered else stream, table)
        chain = shaped._chain
        assert (shaped.columns, shaped.dtypes) == (expected.columns, expected.dtypes), name
        frames[name, filtered, "expected"] = expected
        frames[name, filtered, "applied"] = chain.apply(chain.source).drop(*HIDDEN)
        assert chain.markable == (name not in (NEVER | OF_MARKED if filtered else NEVER)), name
        if chain.markable:
            marked = chain.marked(chain.source)
            frames[name, filtered, "kept"] = marked.where(KEPT).drop(*HIDDEN)
            frames[name, filtered, "times"] = marked.select(TIME)
    rows = all_rows(frames)
    for name, filtered in cases:
        expected_rows = rows[name, filtered, "expected"]
        assert rows[name, filtered, "applied"] == expected_rows, (name, filtered)
        if (name, filtered, "kept") in rows:
            assert rows[name, filtered, "kept"] == expected_rows, (name, filtered)
            # None is lost for the watermark.
            assert len(set(rows[name, filtered, "times"])) == 2, (name, filtered)


def test_a_table_of_any_making(spark: SparkSession, stream: Stream) -> None:
    """A static table may contain expressions that a stream must not."""
    table = spark.sql("SELECT DISTINCT id % 3 AS id, rank() OVER (ORDER BY id) AS r FROM range(3) ORDER BY id LIMIT 2")
    assert found(stream.join(table, "id").select("id", "r").toDF()) == ["Row(id=1, r=2)"]


REFUSED: dict[str, tuple[Joined, str]] = {
    "right": (lambda rows, table: rows.join(table, "k", "right_outer"), "how='right_outer' would also give the rows"),
    "full": (lambda rows, table: rows.join(table, "k", "outer"), "a stream has no end"),
    "no table": (lambda rows, table: rows.join([1], "k"), "expected a batch DataFrame .* got builtins.list"),
    "a stream": (lambda rows, table: rows.join(rows, "k"), "this stream has no watermark"),
    "results": (
        lambda rows, table: rows.join(rows.withWatermark("ts", 0).groupBy(sj.window("ts", "1 hour")).count(), "k"),
        "the other side is a stream",
    ),
    "a stream once": (
        lambda rows, table: rows.join(sj.read_once(rows._visible), "k"),
        "read_once: this DataFrame is a",
    ),
    "a name of ours": (lambda rows, table: rows.join(table.withColumn(TIME, F.lit(1)), "k"), f"{TIME!r} is used by"),
    "our column": (lambda rows, table: rows.join(table, [TIME]), f"{TIME!r} is one of sparkjet's own"),
    "our column in a condition": (
        lambda rows, table: rows.withWatermark("ts", 0).join(table, F.expr(f"{TIME} > n")),
        "the condition reads a column of sparkjet's own",
    ),
    "a number": (lambda rows, table: rows.join(table, 3), "on=3 must be a name, a Column, or a list"),
    "once before the watermark": (
        lambda rows, table: rows.join(sj.read_once(table), "k").withWatermark("ts", 0),
        "withWatermark: what comes before is a part of the query that Spark runs.*after withWatermark",
    ),
    "once before a union": (
        lambda rows, table: rows.union(rows.join(sj.read_every_epoch(lambda: table), "k", "left_semi")),
        "union: what comes before",
    ),
    "not a table each time": (
        lambda rows, table: sj.read_every_epoch(lambda: None),
        "read_every_epoch: expected a batch",
    ),
    "an event time of the table": (
        lambda rows, table: (
            rows.withWatermark("ts", 0)
            .join(table.withColumn("ts", F.current_timestamp()), rows.k == table.k)
            .groupBy(sj.window("ts", "1 hour"))
        ),
        "'ts' was replaced after withWatermark",
    ),
    "a key of both": (
        lambda rows, table: (
            rows.withWatermark("ts", 0).join(table, rows.k == table.k).groupBy(sj.window("ts", "1 hour"), table.k)
        ),
        r"two columns are named 'k'.*drop\(table.k\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_join_must_not_be_is_named(spark: SparkSession, tmp_path: Path, table: DataFrame, case: str) -> None:
    rows = sj.stream(spark.readStream.schema("k string, ts timestamp").json(str(tmp_path)))
    refused, message = REFUSED[case]
    with pytest.raises(sj.AnalysisError, match=message):
        refused(rows, table)


def test_a_name_of_both_is_ambiguous_as_in_spark(stream: Stream, table: DataFrame) -> None:
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        stream.join(table, F.col("k") == F.col("k"))
