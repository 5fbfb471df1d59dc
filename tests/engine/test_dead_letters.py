"""Dead letters: a row that fails after divert(…) ends up there once, and all others where they would have been."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.errors import FailuresError
from sparkjet.testing import StreamDriver
from tests.parameters import mostly_crash, mostly_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts string, k string, px string"
# In CI, the fuzzer has rows that fail over restarts, with windows behind them.
MODES = mostly_long({name: name for name in ("at once", "in batches", "restored")}, ["at once"])
BAD = 7


def at(second: int) -> str:
    """A second of a day, as text."""
    return f"2026-01-01 12:{second // 60 % 60:02}:{second % 60:02}"


def rows(count: int) -> list[tuple[str, str, str]]:
    """Rows of which one has no price."""
    return [(at(n), "ab"[n % 2], "n/a" if n == BAD else str(n)) for n in range(count)]


def run(
    spark: SparkSession, query: Callable[[sj.Stream], Sequence[Any]], given: Sequence[tuple[str, ...]], mode: str
) -> StreamDriver:
    """A query over some rows, cut into epochs in one of the ways."""
    driver = StreamDriver(spark, query, SCHEMA)
    size = len(given) if mode == "at once" else -(-len(given) // 3)
    for first in range(0, len(given), size):
        driver.process(given[first : first + size])
        if mode == "restored":
            driver.restart()
    return driver


def parsed(stream: sj.Stream) -> sj.Stream:
    """Prices as numbers, times as timestamps; both may fail."""
    diverted = stream.divert(errors=True)
    return diverted.withColumn("ts", F.col("ts").cast("timestamp")).withColumn("px", F.col("px").cast("int"))


@pytest.mark.parametrize("mode", MODES)
def test_without_windows(spark: SparkSession, mode: str) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream)
        return [found.where("px >= 0").select("k", "px"), found.deadLetters]

    driver = run(spark, query, rows(30), mode)
    assert Counter(row.px for row in driver.results()) == Counter(n for n in range(30) if n != BAD)
    (letter,) = driver.results(1)
    assert (letter.ts, letter.k, letter.px) == (at(BAD), "b", "n/a")
    assert (letter._stage, letter._error) == ("withColumn px: CAST(px AS INT)", "CAST_INVALID_INPUT")
    assert "The value 'n/a'" in letter._message
    assert "NumberFormat" in letter._trace
    assert (letter._substream, letter._epoch) == (None, 1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("watermark_first", mostly_crash([False, True], [False], crash=[]))
def test_before_windows_a_failed_row_still_moves_the_watermark(
    spark: SparkSession, mode: str, watermark_first: bool
) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        if watermark_first:
            timed = stream.withColumn("ts", F.col("ts").cast("timestamp")).withWatermark("ts", "1 second", by="k")
            found = timed.divert(errors=True).withColumn("px", F.col("px").cast("int"))
        else:
            found = parsed(stream).withWatermark("ts", "1 second", by="k")
        windows = found.groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("px").alias("n"))
        return [windows, found.deadLetters, windows.lateRows]

    given = [*rows(20), (at(40), "a", "n/a"), (at(41), "b", "n/a")]
    driver = run(spark, query, given, mode)
    # The rows at the end have failed, and have closed what was before them.
    assert sorted((row.k, row.n) for row in driver.results()) == [("a", 20), ("a", 70), ("b", 18), ("b", 75)]
    letters = Counter((str(row.ts), row._substream) for row in driver.results(1))
    assert letters == Counter([(at(BAD), "b"), (at(40), "a"), (at(41), "b")])
    assert (driver.late_rows(), driver.late_counts) == ([], {})


def test_a_row_whose_time_cannot_be_read_has_none_for_the_watermark(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream).withWatermark("ts", "1 second", by="k", substreams=["a"])
        return [found.groupBy(F.window("ts", "10 seconds")).count(), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "a", "1"), ("never", "a", "1"), ("never", "new", "1")])
    assert driver.watermark == datetime(2026, 1, 1, 12)
    assert Counter((row.k, row._substream) for row in driver.results(1)) == Counter([("a", "a"), ("new", "new")])


# In CI, the fuzzer drops and diverts rows before the watermark.
@pytest.mark.long
def test_a_row_that_is_dropped_before_the_watermark_does_not_advance_it(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        timed = stream.divert(errors=True).withColumn("ts", F.col("ts").cast("timestamp"))
        kept = timed.where("ts < TIMESTAMP '2030-01-01'").withColumn("by", F.expr("CAST(k AS INT)"))
        found = kept.withWatermark("ts", "1 second", by="by")
        return [found.groupBy(F.window("ts", "10 seconds")).count(), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "1", ""), ("9999-01-01 00:00:00", "1", ""), ("9999-01-01 00:00:00", "x", "")])
    # Neither of its own substream, nor of one that has no name as it was not computed.
    assert driver.watermark == datetime(2026, 1, 1, 12)
    assert driver.results(1) == []


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_before_duplicates_are_dropped(spark: SparkSession, mode: str) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream)
        return [found.dropDuplicates(["px"]).select("px"), found.deadLetters]

    driver = run(spark, query, [*rows(9), *rows(9)], mode)
    assert sorted(row.px for row in driver.results()) == [0, 1, 2, 3, 4, 5, 6, 8]
    assert [row.px for row in driver.results(1)] == ["n/a", "n/a"]


@pytest.mark.long
def test_gaps_of_sessions_are_tried(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.withColumn("ts", F.col("ts").cast("timestamp")).withWatermark("ts", 0).divert(errors=True)
        gap = F.expr("make_interval(0, 0, 0, 0, 0, 0, CAST(px AS INT))")
        return [found.groupBy(sj.session_window("ts", gap)).count(), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "a", "5"), (at(2), "a", "n/a"), (at(3), "a", "5"), (at(59), "a", "5")])
    assert [row["count"] for row in driver.results()] == [2]
    (letter,) = driver.results(1)
    assert (letter.px, letter._substream) == ("n/a", "all")
    assert "n/a" in letter._message


@pytest.mark.long
def test_each_of_two_streams_has_its_own_dead_letters(spark: SparkSession) -> None:
    def side(stream: sj.Stream, name: str) -> tuple[sj.Stream, Any]:
        found = parsed(stream).alias(name).withWatermark("ts", 0)
        return found, found.groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("px").alias(name))

    def query(left: sj.Stream, right: sj.Stream) -> list[Any]:
        one, sums = side(left, "one")
        two, others = side(right, "two")
        return [sums.join(others, ["window", "k"]), one.deadLetters, two.deadLetters]

    driver = StreamDriver(spark, query, [SCHEMA, SCHEMA])
    ends = [(at(30), "a", "n/a")]
    driver.process([(at(1), "a", "5"), (at(2), "a", "x"), *ends], [(at(3), "a", "y"), (at(4), "a", "8"), *ends])
    assert [(row.one, row.two) for row in driver.results()] == [(5, 8)]
    assert Counter(row.px for row in driver.results(1)) == Counter(["x", "n/a"])
    assert Counter(row.px for row in driver.results(2)) == Counter(["y", "n/a"])


@pytest.mark.long
def test_before_rolling_aggregates(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream)
        return [found.groupBy("k").agg(F.sum("px").alias("n")), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA, outputMode="update")
    driver.process(rows(9))
    assert sorted((row.k, row.n) for row in driver.results()) == [("a", 20), ("b", 9)]
    assert [row.px for row in driver.results(1)] == ["n/a"]


# In CI, `test_expectations.py` shows it of what rows do not meet.
@pytest.mark.long
def test_several_results_of_one_stream_share_what_they_have_in_common(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream)
        return [
            found.select((10 / F.col("px")).alias("tenth")),
            found.select((F.col("k").cast("int") + F.col("px")).alias("sum")),
            found.deadLetters,
        ]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "1", "5"), (at(2), "1", "n/a"), (at(3), "1", "0"), (at(4), "b", "2")])
    assert sorted(row.tenth for row in driver.results(0)) == [2.0, 5.0]
    assert sorted(row.sum for row in driver.results(1)) == [1, 6]
    found = Counter((row.ts, row._error) for row in driver.results(2))
    errors = [(2, "CAST_INVALID_INPUT"), (3, "DIVIDE_BY_ZERO"), (4, "CAST_INVALID_INPUT")]
    assert found == Counter((at(second), error) for second, error in errors)


def test_a_result_may_have_the_rows_as_they_are_where_they_are_diverted(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        diverted = stream.divert(errors=True)
        numbers = diverted.withColumn("px", F.col("px").cast("int"))
        return [diverted.groupBy("k").count(), numbers.groupBy("k").agg(F.sum("px").alias("px")), diverted.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA, outputMode="complete")
    driver.process(rows(9))
    assert {row.k: row["count"] for row in driver.results(0)} == {"a": 5, "b": 4}
    assert {row.k: row.px for row in driver.results(1)} == {"a": 20, "b": 9}
    (letter,) = driver.results(2)
    assert (letter.px, letter._outputs) == ("n/a", "out1")


# In CI, `crash/test_dead_letters.py` kills drivers at each phase.
@pytest.mark.parametrize("phase", mostly_crash(EpochPhase, [], crash=[]))
def test_after_a_crash_each_dead_letter_is_there_once(spark: SparkSession, phase: EpochPhase) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = parsed(stream)
        return [found.select("px"), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    with driver.crash(at=phase):
        driver.process(rows(9))
    driver.restart()
    driver.process()
    assert sorted(row.px for row in driver.results()) == [0, 1, 2, 3, 4, 5, 6, 8]
    assert [(row.px, row._epoch) for row in driver.results(1)] == [("n/a", 1)]


@pytest.mark.parametrize("kind", ["sql", "python"])
def test_what_differs_each_time_is_tried_once_for_results_and_dead_letters(spark: SparkSession, kind: str) -> None:
    fails = F.udf(lambda: 1 // random.getrandbits(1), "int") if kind == "python" else None

    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True)
        column = F.expr("IF(rand() < 0.5, CAST(k AS INT), 1)") if fails is None else fails()
        return [found.select("ts"), found.select("ts", column.alias("n")), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(str(n), "a", "1") for n in range(60)])
    good, bad = ([row.ts for row in driver.results(number)] for number in (1, 2))
    assert good
    assert bad
    assert sorted(good + bad) == sorted(row.ts for row in driver.results(0))


@pytest.mark.parametrize(
    ("most", "ends"),
    mostly_crash([(2, True), (0.1, True), (0, True), (3, False), (0.5, False)], [(0.1, True)], crash=[]),
)
def test_more_failures_than_allowed_end_the_query(spark: SparkSession, most: float, ends: bool) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True, maxFailures=most).selectExpr("CAST(px AS INT) AS px")
        return [found, found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    given = [(at(n), "a", "n/a" if n < 3 else str(n)) for n in range(9)]
    if not ends:
        driver.process(given)
        assert len(driver.results(1)) == 3
        return
    with pytest.raises(FailuresError, match=r"out1: 3 rows of the epoch have failed.*The value 'n/a'"):
        driver.process(given)
    driver.restart()
    assert (driver.results(), driver.results(1)) == ([], [])


@pytest.mark.long
def test_what_was_said_is_known_of_some_rows(spark: SparkSession) -> None:
    given = spark.createDataFrame([(f"x{n % 30}",) for n in range(60)], "px string")
    found = sj.stream(given).divert(errors=True).selectExpr("CAST(px AS INT) AS px").deadLetters.toDF().collect()
    assert len(found) == 60
    # Equal rows have said the same.
    assert sum(row._message is not None for row in found) == 20
    assert all(f"'{row.px}'" in row._message for row in found if row._message is not None)


of_groups = UserDefinedFunction(len, "int", evalType=PythonEvalType.SQL_GROUPED_AGG_PANDAS_UDF)

REFUSED: dict[str, tuple[Callable[[sj.Stream], Any], str]] = {
    "twice": (lambda s: s.divert(errors=True).divert(errors=True), "diverted already"),
    "errors": (lambda s: s.divert(errors=False), "errors=False"),
    "bound": (lambda s: s.divert(errors=True, maxFailures=1.5), r"maxFailures=1\.5"),
    "taken": (lambda s: s.withColumnRenamed("k", "_Error").divert(errors=True), "'_Error' exists already"),
    "two of a name": (lambda s: s.select("px", F.col("k").alias("PX")).divert(errors=True), "several columns 'px'"),
    "not diverted": (lambda s: s.deadLetters, "rows of this stream are not diverted"),
    "stateful": (lambda s: s.dropDuplicates().divert(errors=True).groupBy("k").count().toDF(), "another stateful step"),
    "explode": (lambda s: s.divert(errors=True).select(F.explode(F.split("px", ","))), "explode"),
    "window": (lambda s: s.divert(errors=True).select(F.window(F.col("ts").cast("timestamp"), "1 hour")), "window"),
    "python": (lambda s: s.divert(errors=True).select(of_groups("px")), "aggregation of all rows"),
    "all": (lambda s: s.divert(errors=True, maxFailures=1.0), "Leave it out"),
    "own column": (lambda s: s.divert(errors=True).withColumn("_sparkjet_try0", F.lit(1)), "'_sparkjet_try0'"),
    "own column before": (lambda s: s.withColumn("_sparkjet_try0", F.lit(1)).divert(errors=True), "'_sparkjet_try0'"),
    "drop": (lambda s: s.divert(errors=True).drop("_Sparkjet_kept"), "is used by sparkjet"),
    "rename": (lambda s: s.divert(errors=True).withColumnRenamed("_sparkjet_original", "o"), "is used by sparkjet"),
    "lateral": (lambda s: s.divert(errors=True).selectExpr("rand() AS n", "n + 1 AS m").toDF(), "same select"),
    "over": (
        lambda s: (
            s.withColumn("at", F.expr("timestamp_seconds(1)"))
            .withWatermark("at", "1 minute")
            .groupBy(F.window("at", "1 hour"), "k")
            .agg(F.max("px").alias("px"))
            .divert(errors=True)
            .withColumn("n", F.sum(F.col("px").cast("int")).over(Window.partitionBy("window")))
        ),
        r"a window function \(over\)",
    ),
    "in subquery": (
        lambda s: s.divert(errors=True).where("CAST(px AS INT) IN (SELECT id FROM range(3))"),
        "a subquery that Spark makes a join of",
    ),
    "subquery of the row": (
        lambda s: s.divert(errors=True).selectExpr("(SELECT max(id) FROM range(3) WHERE id = CAST(px AS INT)) AS n"),
        "a subquery that Spark makes a join of",
    ),
    "map": (lambda s: s.divert(errors=True).mapInPandas(lambda frames: frames, "px int"), "mapInPandas"),
    "repartition": (lambda s: s.divert(errors=True).repartition(2, F.expr("CAST(px AS INT)")), "repartition"),
    "table": (lambda s: s.divert(errors=True).join(s.sparkSession.range(3), F.expr("id = CAST(px AS INT)")), "a join"),
    "union": (lambda s: s.divert(errors=True).union(s), "on the union"),
    "hidden": (lambda s: s.divert(errors=True).select("_sparkjet_failure"), "_sparkjet_failure"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_diverted_is_refused_by_name(spark: SparkSession, name: str) -> None:
    query, message = REFUSED[name]
    with pytest.raises(Exception, match=message):
        query(sj.stream(spark.createDataFrame([(at(1), "a", "1")], SCHEMA)))


STAGES: dict[str, tuple[Callable[[sj.Stream], Any], str]] = {
    "event time": (
        lambda s: s.groupBy(F.window(F.expr("CAST(px AS TIMESTAMP)"), "1 hour")).count(),
        "the event time is not tried",
    ),
    "key": (lambda s: s.groupBy(F.expr("CAST(k AS INT)")).count(), "the key"),
    "argument": (lambda s: s.groupBy("k").agg(F.sum("px")), r"sum\(CAST"),
    "window": (
        lambda s: (
            s.withColumn("at", F.expr("timestamp_seconds(1)"))
            .withWatermark("at", "1 minute")
            .groupBy(F.window("at", "1 hour"))
            .agg(F.max_by("k", F.expr("CAST(px AS INT)")))
        ),
        "max_by",
    ),
    "join": (
        lambda s: (
            s.withColumn("at", F.expr("timestamp_seconds(1)"))
            .withWatermark("at", "1 minute")
            .alias("l")
            .join(
                sj.stream(s.sparkSession.sql("SELECT timestamp_seconds(1) AS t, '1' AS o")).withWatermark(
                    "t", "1 minute"
                ),
                F.expr("o = px AND at BETWEEN t AND t + INTERVAL 1 HOUR"),
            )
        ),
        "a join of two streams",
    ),
    "function with state": (
        lambda s: s.groupBy("k").applyInPandasWithState(
            lambda *_: [], "k string", "n int", "append", GroupStateTimeout.NoTimeout
        ),
        "a function with state",
    ),
    "widening that may overflow": (
        lambda s: (
            s.withColumn("day", F.lit("2026-01-01").cast("date")).groupBy(F.expr("CAST(day AS TIMESTAMP)")).count()
        ),
        "the key",
    ),
    "python": (lambda s: s.groupBy("k").agg(F.max(F.udf(len, "int")("px"))), "max"),
    "own argument": (lambda s: s.groupBy("k").agg(F.max(F.expr("CAST(px AS INT)"))), "max"),
}


@pytest.mark.parametrize("name", STAGES)
def test_what_a_stage_computes_of_rows_is_refused_if_it_may_raise(spark: SparkSession, name: str) -> None:
    query, message = STAGES[name]
    found = query(sj.stream(spark.createDataFrame([(at(1), "a", "1")], SCHEMA)).divert(errors=True))
    with pytest.raises(sj.AnalysisError, match=f"divert: .*{message}.* withColumn"):
        found.toDF()


@pytest.mark.long
def test_aggregates_of_columns_are_not_refused(spark: SparkSession) -> None:
    given = spark.createDataFrame([("a", 1, 1.0, 1), ("a", 2, 2.0, 2)], "k string, n int, x double, l long")
    stream = sj.stream(given).divert(errors=True)
    calls = [F.sum("n"), F.avg("n"), F.min("x"), F.max("k"), F.count("*"), F.count_distinct("n"), F.stddev("x")]
    calls += [F.max_by("k", "n"), F.sum(F.when(F.col("n") > 1, 1)), F.collect_list("k")]
    # Their sums are of the upper and the lower half.
    calls += [F.sum("l"), F.avg("l"), F.try_sum("l"), F.try_avg("l")]
    named = [call.alias(f"c{number}") for number, call in enumerate(calls)]
    assert stream.groupBy("k").agg(*named).toDF().count() == 1


@pytest.mark.parametrize("condition", ["px >= 0", "1 = 0"])
def test_a_query_of_sparks_own_writes_them_beside_its_results(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    given = [(at(n), "ab"[n % 2], "n/a" if n == BAD else str(n)) for n in range(10_000)]
    spark.createDataFrame(given, SCHEMA).coalesce(1).write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    # Spark knows of the second that no row is left, and would read none.
    found = parsed(sj.stream(read)).where(condition)
    writer = found.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("path", tmp_path / "out").option("checkpointLocation", tmp_path / "home")
    with pytest.raises(sj.AnalysisError, match=r"divert\(errors=True\) needs a place"):
        writer.start()
    query = writer.option("deadLettersPath", tmp_path / "dead").start()
    query.awaitTermination()
    assert query.lastProgress is not None
    assert query.lastProgress["failedRows"] == {"withColumn px: CAST(px AS INT)": 1}
    if condition == "px >= 0":
        assert sj.read_files(tmp_path / "out").count() == 9_999
    (letter,) = sj.read_files(tmp_path / "dead").collect()
    assert (letter.px, letter._error, letter._epoch) == ("n/a", "CAST_INVALID_INPUT", 1)


def test_a_start_is_refused_that_would_divert_rows_to_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    rate = sj.stream(spark.readStream.format("rate").load())
    found = rate.divert(errors=True)
    letters = found.deadLetters.writeStream.format("noop")
    with pytest.raises(sj.AnalysisError, match="no rows are diverted"):
        rate.writeStream.format("noop").option("deadLettersPath", "/nowhere").start()
    with pytest.raises(sj.AnalysisError, match=r"goes into deadLetters=…"):
        sj.start(letters)
    with pytest.raises(sj.AnalysisError, match="takes writers of dead letters"):
        sj.start(found.writeStream.format("noop"), deadLetters=found.writeStream.format("noop"))
    with pytest.raises(sj.AnalysisError, match="from which no result comes"):
        sj.start(rate.writeStream.format("noop"), deadLetters=letters)
    with pytest.raises(sj.AnalysisError, match="dead rows are never early"):
        sj.start(found.writeStream.format("noop"), deadLetters=letters.outputMode("update"))
    windows = rate.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count()
    late = windows.lateRows.withColumnRenamed("_substream", "of").divert(errors=True).writeStream.format("noop")
    with pytest.raises(sj.AnalysisError, match="needs a place for the rows that fail"):
        sj.start(windows.writeStream.format("noop"), lateRows=late)
    plain = windows.lateRows.writeStream.format("noop").option("deadLettersPath", "/nowhere")
    with pytest.raises(sj.AnalysisError, match="no rows are diverted"):
        sj.start(windows.writeStream.format("noop"), lateRows=plain)
    (tmp_path / "link").symlink_to(tmp_path)
    twice = found.writeStream.format("parquet").option("checkpointLocation", tmp_path / "home")
    with pytest.raises(sj.AnalysisError, match="two outputs write to"):
        twice.option("path", tmp_path / "out").option("deadLettersPath", tmp_path / "link" / "out").start()
    elsewhere = found.deadLetters.writeStream.format("noop").option("deadLettersPath", "/nowhere")
    with pytest.raises(sj.AnalysisError, match="only writers of results take it"):
        sj.start(found.writeStream.format("noop"), deadLetters=elsewhere)
