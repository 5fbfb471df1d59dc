"""Queries that Spark runs, too: the results are those of Spark's batch, in one batch, in many, and after restarts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.api.grouped import WindowedStream
from sparkjet.testing import CollectingSink, StreamDriver
from tests.environment.session_settings import session_with
from tests.together import all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]

Query = Callable[[Any], Any]

SCHEMA = "ts timestamp, k string, x int, n long"
Rows = list[tuple[str, str | None, int | None, int | None]]
EPOCHS: list[Rows] = [
    [("2026-01-01 12:00:01", "a", 1, 3), ("2026-01-01 12:00:09", "b", 2, 5), ("2026-01-01 12:00:11", "a", None, 1)],
    [("2026-01-01 12:00:12", "b", 1, 9), ("2026-01-01 12:00:30", "a", 2, None)],
    [("2026-01-01 12:00:31", None, 1, 4), ("2026-01-01 12:00:39", "a", 1, 2), ("2026-01-01 12:09:00", "z", 7, 0)],
]
TWO = [EPOCHS[0], EPOCHS[1] + EPOCHS[2]]
"""With a restart between them; complete results are those of all rows so far, after each."""


def as_spark(rows: DataFrame, query: Query) -> list[str]:
    result = query(rows)
    return [str(result.columns), *sorted(map(str, result.collect()))]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """All rows at once, with times as the driver makes them of texts."""
    every = [row for epoch in EPOCHS for row in epoch]
    texts = spark.createDataFrame(every, SCHEMA.replace("timestamp", "string"))
    return texts.withColumn("ts", F.to_timestamp("ts")).localCheckpoint()


def timed(stream: Any) -> Any:
    return stream.withWatermark("ts", "5 seconds")


def tens(stream: Any, *keys: str) -> Any:
    return stream.groupBy(F.window("ts", "10 seconds"), *keys)


def computed(stream: Any) -> Any:
    return stream.withColumn("w", F.window("ts", "10 seconds"))


def shadowed(stream: Any) -> Any:
    return stream.withColumn("window", F.struct(F.lit("2020-01-01").cast("timestamp").alias("start")))


def per_key(stream: Any) -> Any:
    return stream.groupBy("k", "x").agg(F.sum("n").alias("t"))


WINDOWS: dict[str, Query] = {
    "a column by its name": lambda s: tens(s.where("n > 1").withColumns({"c": "k"}), "c").count(),
    "the window in an expression": lambda s: tens(s, "k").agg(
        (F.max("ts") - F.col("window.start")).alias("reached"), F.struct("window", F.sum("n")).alias("s")
    ),
    "the call of the window once more": lambda s: tens(s, "k").agg(
        F.window("ts", "10 seconds").start,
        (F.max("ts") - F.window("ts", "10 seconds").getField("start")).alias("reached"),
        F.window("ts", "10 seconds").alias("w"),
    ),
    "the call of the session once more": lambda s: s.groupBy(F.session_window("ts", "3 seconds")).agg(
        F.count("n"), F.session_window("ts", "3 seconds").end
    ),
    "a dict": lambda s: tens(s).agg({"n": "sum", "x": "average", "k": "size", "ts": "max", "*": "count"}),
    "pivot": lambda s: tens(s).pivot("x", [1, 5]).agg(F.sum("n").alias("sum"), F.count(F.lit(1)).alias("rows")),
    "pivot of a type that is looked for": lambda s: tens(s).pivot("x", [1, 5]).agg(F.max("k"), F.count("n")),
    "a computed window": lambda s: computed(s).groupBy("w", "k").agg(F.max("ts") - F.col("w.start")),
    "a selected window": lambda s: s.select(F.window("ts", "10 seconds"), "n").groupBy("window").sum("n"),
    "a renamed window": lambda s: computed(s).select(F.col("w").alias("v"), "x").where("x > 0").groupBy("v").count(),
}
WITH_WATERMARK: dict[str, Query] = {
    "windows once more": lambda s: tens(s, "k").count().groupBy("k").max("count").orderBy("k"),
    "windows in one row": lambda s: tens(s, "k").count().agg(F.max("count")),
    "a computed window": lambda s: computed(s).groupBy("w", "k").count(),
    "the time of a computed window": lambda s: (
        computed(s).groupBy("w", "k").count().select(F.window_time("w").alias("at"), "k", "count")
    ),
    "sliding windows that were computed": lambda s: (
        s.select(F.window("ts", "10 seconds", "5 seconds"), "n").groupBy("window").sum("n")
    ),
}
WITHOUT: dict[str, Query] = {
    "pivot": lambda s: s.groupBy("k").pivot("x", [1, 2]).sum("n"),
    "pivot of texts by their order": lambda s: (
        s.groupBy((F.col("n") > 3).alias("more")).pivot("x", [1, 2]).agg(F.first("k"), F.last("k"))
    ),
    "pivot by a dict": lambda s: s.groupBy("k").pivot("x", [1, 7]).agg({"n": "max", "k": "min"}),
    "pivot of text by a number": lambda s: s.groupBy("x").pivot("k", ["a", 1, None]).sum("n"),
    "pivot of fractions": lambda s: (
        s.withColumn("f", (F.col("x") / 10).cast("float")).groupBy("k").pivot("f", [0.1, 0.2]).count()
    ),
    "a star with blanks": lambda s: s.selectExpr(" * ", "x + 1 AS y").groupBy("k").sum("y"),
    "columns by their numbers": lambda s: s.groupBy(2, "x").sum("N"),
    "keys in a tuple": lambda s: s.groupBy(("k", "x")).count(),
    "sums of fields": lambda s: s.withColumn("s", F.struct("n")).groupBy("k").sum("s.n").toDF("k", "t"),
    "agg of results": lambda s: per_key(s).agg(F.max("t"), F.count(F.lit(1))),
    "rollup of results": lambda s: per_key(s).rollup("k", "x").agg(F.sum("t"), F.grouping_id()),
    "cube of results": lambda s: per_key(s).cube("k", "x").count(),
    "sets of results": lambda s: per_key(s).groupingSets([("k",), ("x",)], "k", "x").agg(F.sum("t")),
    "pivot of results": lambda s: per_key(s).groupBy("k").pivot("x", [1, 2]).sum("t"),
    "kept windows once more": lambda s: tens(s, "k").count().groupBy("window").count(),
}


FEW = ("the call of the window once more", "pivot", "a computed window", "agg of results", "kept windows once more")


def kept(queries: dict[str, Query]) -> dict[str, Query]:
    """Those of a stream in CI: how a stage keeps its state does not depend on how it was written."""
    return {name: query for name, query in queries.items() if name in FEW}


@pytest.mark.parametrize(
    ("queries", "watermark"),
    [
        pytest.param(WINDOWS, True, id="windows"),
        pytest.param(WITH_WATERMARK, True, id="complete windows", marks=pytest.mark.long),
        pytest.param(kept(WITHOUT), False, id="some complete"),
        pytest.param(WITHOUT, False, id="complete", marks=pytest.mark.long),
    ],
)
def test_results_of_a_batch_are_those_of_spark(rows: DataFrame, queries: dict[str, Query], watermark: bool) -> None:
    stream = timed(sj.stream(rows)) if watermark else sj.stream(rows)
    ours = {name: query(stream).toDF() for name, query in queries.items()}
    sparks = {name: query(rows) for name, query in queries.items()}
    found, expected = all_rows(ours), all_rows(sparks)
    for name in queries:
        assert (ours[name].columns, found[name]) == (sparks[name].columns, expected[name]), name


@pytest.mark.parametrize(
    ("queries", "watermark", "mode", "epochs"),
    [
        pytest.param(kept(WINDOWS), True, "append", TWO, id="some windows"),
        pytest.param(kept(WITHOUT), False, "complete", TWO, id="some complete"),
        pytest.param(WINDOWS, True, "append", TWO, id="windows", marks=pytest.mark.long),
        pytest.param(WINDOWS, True, "append", EPOCHS, id="windows in three", marks=pytest.mark.long),
        pytest.param(
            WINDOWS, True, "append", [[*chain.from_iterable(EPOCHS)]], id="windows at once", marks=pytest.mark.long
        ),
        pytest.param(WITH_WATERMARK, True, "complete", TWO, id="complete windows", marks=pytest.mark.long),
        pytest.param(WITHOUT, False, "complete", TWO, id="complete", marks=pytest.mark.long),
    ],
)
def test_results_are_those_of_sparks_batch(
    spark: SparkSession, rows: DataFrame, queries: dict[str, Query], watermark: bool, mode: str, epochs: list[Rows]
) -> None:
    def begun(stream: Any) -> Any:
        return timed(stream) if watermark else stream

    def every(stream: Any) -> list[Any]:
        shared = begun(stream)
        return [query(shared) for query in queries.values()]

    expected = {name: as_spark(begun(rows), query) for name, query in queries.items()}
    driver = StreamDriver(spark, every, SCHEMA, outputMode=mode)
    for number, epoch in enumerate(epochs):
        driver.process(epoch)
        if number == len(epochs) - 2:
            driver.restart()
    if mode == "append":
        driver.close_windows()
    for (name, query), sink in zip(queries.items(), driver.sinks, strict=True):
        assert isinstance(sink, CollectingSink)
        found = sink.rows() if mode == "append" else sink.committed[max(sink.committed)]
        columns = str(query(begun(sj.stream(rows))).columns)
        assert [columns, *sorted(map(str, found))] == expected[name], name


def test_sql_may_spell_a_window_in_capitals(rows: DataFrame) -> None:
    spelled = sj.stream(rows).withColumn("w", F.expr("WINDOW(ts, '10 seconds')"))
    assert isinstance(timed(spelled).groupBy("w").count(), WindowedStream)
    repeated = tens(timed(sj.stream(rows))).agg(F.count("n"), F.expr("WINDOW(ts, '10 seconds').start"))
    assert as_spark(rows, lambda _: repeated.toDF()) == as_spark(
        rows, lambda frame: tens(frame).agg(F.count("n"), F.window("ts", "10 seconds").start)
    )


def test_a_watermark_takes_what_sparks_takes(rows: DataFrame) -> None:
    found = sj.stream(rows).withWatermark("TS", delayThreshold="5 seconds").groupBy(F.window("Ts", "10 seconds"))
    assert as_spark(rows, lambda _: found.count().toDF()) == as_spark(rows, lambda frame: tens(frame).count())


def test_a_window_is_known_from_before_the_watermark(rows: DataFrame) -> None:
    found = timed(computed(sj.stream(rows))).groupBy("w").count()
    assert isinstance(found, WindowedStream)
    assert as_spark(rows, lambda _: found.toDF()) == as_spark(rows, lambda frame: computed(frame).groupBy("w").count())


def test_a_computed_window_is_kept_in_update_mode(spark: SparkSession) -> None:
    driver = StreamDriver(spark, lambda s: computed(timed(s)).groupBy("w").count(), SCHEMA, outputMode="update")
    for ts in ("12:00:01", "12:09:00", "12:00:02"):
        driver.process([(f"2026-01-01 {ts}", "a", 1, 1)])
    assert [row["count"] for row in driver.results()] == [1, 1, 2]


def test_a_pivot_does_not_depend_on_how_plans_are_shown(spark: SparkSession) -> None:
    session = session_with(spark, {"spark.sql.debug.maxToStringFields": "1"})
    few = session.createDataFrame([("a", 1), ("b", 2)], "k string, x int")

    def query(rows: Any) -> Any:
        return rows.groupBy("k").pivot("x", [1, 2]).agg(F.count(F.lit(1)))

    assert as_spark(few, lambda frame: query(sj.stream(frame)).toDF()) == as_spark(few, query)


REFUSED: dict[str, tuple[Query, str, Query]] = {
    "a key twice": (
        lambda s: s.groupBy("k", "k"),
        r"groupBy: 'k' is there twice.*e.g. F.col\(\"k\"\).alias\(\"k_2\"\)",
        lambda s: s.groupBy("k", F.col("k").alias("k_2")).count(),
    ),
    "the window within an aggregate": (
        lambda s: tens(timed(s)).agg(F.max(F.col("ts") - F.col("window.start"))),
        r"max\(\(ts - window.`start`\)\): the window is not known yet.*outside of the aggregate.*withColumn",
        lambda s: tens(timed(computed(s))).agg(F.max(F.col("ts") - F.col("w.start"))),
    ),
    "the call of another window": (
        lambda s: tens(timed(s)).agg(F.max("n"), F.window("ts", "20 seconds").start),
        r"agg: .*'20 seconds'.*grouped by another window, 'window'.*F.col\(\"window.start\"\)",
        lambda s: tens(timed(s)).agg(F.max("n"), F.col("window.start")),
    ),
    "the call of the window where a column has its name": (
        lambda s: tens(timed(shadowed(s))).agg(F.max(F.window("ts", "10 seconds").start)),
        r"agg: .*rows have a column 'window' of their own.*groupBy, as in F.window\(…\).alias\(\"w\"\)",
        lambda s: (
            timed(shadowed(s))
            .groupBy(F.window("ts", "10 seconds").alias("w"))
            .agg(F.count("n").alias("count"), F.window("ts", "10 seconds").start.alias("since"))
        ),
    ),
    "pivot without values": (
        lambda s: s.groupBy("k").pivot("x"),
        r"pivot: give the values of 'x'.*pivot\(\"x\", \[",
        lambda s: s.groupBy("k").pivot("x", [1]).count(),
    ),
    "pivot twice": (
        lambda s: s.groupBy("k").pivot("x", [1]).pivot("n", [3]),
        r"once for each groupBy.*F.concat",
        lambda s: s.withColumn("xn", F.concat("x", "n")).groupBy("k").pivot("xn", ["13"]).count(),
    ),
    "pivot with an aggregate of sparkjet's": (
        lambda s: s.groupBy("k").pivot("x", [1]).agg(J.top_n("n", 1)),
        r"pivot: top_n\(n, 1\) is an aggregate of sparkjet's. Use those of pyspark.sql.functions",
        lambda s: s.groupBy("k").pivot("x", [1]).agg(F.sum("n")),
    ),
    "a session that was computed": (
        lambda s: timed(s).withColumn("w", F.session_window("ts", "5 seconds")).groupBy("w"),
        r"'w' is the session of each row by itself. Give groupBy the call itself, F.session_window",
        lambda s: timed(s).groupBy(F.session_window("ts", "5 seconds").alias("w")).count(),
    ),
}


@pytest.mark.parametrize(("query", "message", "instead"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_has_a_way_out_that_works(rows: DataFrame, query: Query, message: str, instead: Query) -> None:
    with pytest.raises(sj.AnalysisError, match=message):
        query(sj.stream(rows))
    assert as_spark(rows, lambda frame: instead(sj.stream(frame)).toDF()) == as_spark(rows, instead)
