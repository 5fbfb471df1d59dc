"""Expectations: rows that do not meet one are dropped, diverted or end the query, and each is counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.errors import ExpectationError
from sparkjet.testing import StreamDriver
from tests.parameters import mostly_crash, mostly_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts timestamp, k string, px int"
GIVEN = [("2026-01-01 12:00:01", "a", 5), ("2026-01-01 12:00:02", "a", -1), ("2026-01-01 12:00:03", "b", None)]
LATER = [("2026-01-01 12:00:41", "b", 7), ("2026-01-01 12:00:42", "b", -2)]


def counts(driver: StreamDriver) -> dict[str, int]:
    """The record's counts."""
    driver.engine.join()
    return driver.engine.record.expectations


def timed(stream: sj.Stream) -> sj.Stream:
    return stream.withWatermark("ts", "1 second")


def windowed(stream: sj.Stream) -> Any:
    return stream.groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("px").alias("n"))


QUERIES: dict[str, tuple[Callable[[sj.Stream], Any], list[Any], dict[str, int]]] = {
    "stream": (lambda s: s.expect("positive", "px > 0", "drop").select("px"), [(5,), (7,)], {"positive": 3}),
    "windows": (
        lambda s: windowed(timed(s).expect("positive", "px > 0", "drop")).select("k", "n"),
        [("a", 5)],
        {"positive": 3},
    ),
    "keys": (
        lambda s: s.expect("known", "px IS NOT NULL", "drop").dropDuplicates(["k"]).select("k"),
        [("a",), ("b",)],
        {"known": 1},
    ),
    "in order": (
        lambda s: (
            s.where("k = 'a' OR px < 0")
            .expect("some", F.col("px").isNotNull(), "drop")
            .expect("positive", "px > 0", "drop")
            .withColumn("tenth", F.expr("10 / px"))
            .where("px < 100")
            .expect("small", "tenth < 1", "drop")
            .select("px")
        ),
        [],
        {"some": 0, "positive": 2, "small": 1},
    ),
    "in one pass": (
        lambda s: s.expect("some", "px IS NOT NULL", "drop").expect("positive", "px > 0", "drop").select("px"),
        [(5,), (7,)],
        {"some": 1, "positive": 2},
    ),
    "diverted before": (
        lambda s: s.divert(errors=True).expect("positive", "px > 0", "drop").select("px"),
        [(5,), (7,)],
        {"positive": 3},
    ),
    "results": (
        lambda s: windowed(timed(s)).where("k IS NOT NULL").expect("known", "n IS NOT NULL", "drop").select("k", "n"),
        [("a", 4)],
        {"known": 1},
    ),
    "results of results": (
        lambda s: (
            windowed(timed(s))
            .expect("known", "n > 0", "drop")
            .groupBy(F.window("window", "20 seconds"))
            .agg(F.sum("n").alias("n"))
            .select("n")
        ),
        [(4,)],
        {"known": 1},
    ),
    "stateful": (
        lambda s: timed(s).dropDuplicates(["ts", "px"]).expect("positive", "px > 0", "drop").select("px"),
        [(5,), (7,)],
        {"positive": 3},
    ),
}


@pytest.mark.parametrize("name", mostly_long({name: name for name in QUERIES}, ["in order", "results"]))
def test_rows_are_counted_where_the_expectation_is_written(spark: SparkSession, name: str) -> None:
    query, good, violated = QUERIES[name]

    def all_outputs(stream: sj.Stream) -> list[Any]:
        found = query(stream)
        return [found, found.deadLetters] if name == "diverted before" else [found]

    driver = StreamDriver(spark, all_outputs, SCHEMA)
    driver.process(GIVEN)
    driver.process(LATER)
    assert counts(driver) == violated
    assert sorted(tuple(row) for row in driver.results()) == good
    if name == "diverted before":
        assert driver.results(1) == []


def test_a_row_that_several_results_share_is_counted_once(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = timed(stream).expect("positive", "px > 0", "drop")
        sums = windowed(found).expect("much", "n > 5", "drop")
        return [
            found.select("px"),
            found.expect("b", "k = 'b'", "drop").select("px"),
            sums.select("n"),
            sums.select("k"),
        ]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([*GIVEN, *LATER, ("2026-01-01 12:02:00", "b", 1)])
    assert counts(driver) == {"positive": 3, "b": 1, "much": 1}
    found = [sorted(next(iter(row)) for row in driver.results(number)) for number in range(4)]
    assert found == [[1, 5, 7], [1, 7], [7], ["b"]]


def test_diverted_rows_are_dead_letters(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True).expect("positive", "px > 0", "divert").expect("a", "k = 'a'", "drop")
        shaped = found.withColumn("n", F.expr("CAST(k AS INT)"))
        return [shaped.select("n"), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([*GIVEN, *LATER])
    assert counts(driver) == {"positive": 3, "a": 1}
    found = Counter((row.px, row._stage, row._error) for row in driver.results(1))
    place = "expect positive"
    cast = (5, "withColumn n: CAST(k AS INT)", "CAST_INVALID_INPUT")
    assert found == Counter([cast, *((px, place, "EXPECTATION_VIOLATION") for px in (-1, None, -2))])
    assert all(row._epoch == 1 for row in driver.results(1))


def test_a_condition_that_raises_is_a_failure_of_the_row_and_no_violation(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True).expect("number", "CAST(k AS INT) > 1", "drop")
        return [found.select("k"), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([("2026-01-01 12:00:01", k, 1) for k in ("a", "1", "2")])
    assert counts(driver) == {"number": 1}
    assert [row.k for row in driver.results()] == ["2"]
    (letter,) = driver.results(1)
    assert (letter.k, letter._error) == ("a", "CAST_INVALID_INPUT")
    assert letter._stage.startswith("expect number: ")


def test_a_row_with_an_implausible_time_does_not_move_the_watermark(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True).expect("time", "ts < TIMESTAMP '2030-01-01'", "divert")
        return [windowed(timed(found)), found.deadLetters]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([*GIVEN, ("9999-01-01 00:00:00", "a", 1)])
    assert (driver.results(), [row.ts.year for row in driver.results(1)]) == ([], [9999])
    assert counts(driver) == {"time": 1}


WHERE = {
    "stream": lambda s, e: e(s).select("px"),
    "results": lambda s, e: e(windowed(timed(s)).withColumn("px", F.col("n"))),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("diverted", mostly_long({"plain": False, "diverted": True}, ["plain"]))
def test_a_row_ends_the_query_before_the_decision(spark: SparkSession, where: str, diverted: bool) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        given = stream.divert(errors=True) if diverted else stream
        found = WHERE[where](given, lambda rows: rows.expect("positive", "px > 0", action="fail"))
        return [found, given.deadLetters] if diverted else [found]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([("2026-01-01 12:00:01", "a", 5)])
    bad = [("2026-01-01 12:00:41", "b", -7), ("2026-01-01 12:00:42", "c", -8), ("2026-01-01 12:05:42", "c", 8)]
    before = driver.results()
    with pytest.raises(ExpectationError, match=r"2 rows of the epoch do not meet 'positive' \(px > 0\)(?s:.*)-[78]"):
        driver.process(bad)
    driver.restart()
    assert (driver.results(), counts(driver)) == (before, {"positive": 0})


@pytest.mark.parametrize("phase", mostly_crash(EpochPhase, [EpochPhase.PREPARE], crash=[]))
def test_counts_belong_to_the_record(spark: SparkSession, phase: EpochPhase) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        return [timed(stream).expect("positive", "px > 0", "drop").select("px")]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process(GIVEN)
    with driver.crash(at=phase):
        driver.process(LATER)
    driver.restart()
    driver.process()
    assert counts(driver) == {"positive": 3}
    assert sorted(row.px for row in driver.results()) == [5, 7]


def test_progress_and_metrics_have_them_by_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([(1,), (-1,), (None,)], "px int").write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema("px int").parquet(str(tmp_path / "in"))
    found = sj.stream(read).expect("positive price", "px > 0", action="drop")
    writer = found.writeStream.format("parquet").option("path", tmp_path / "out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", tmp_path / "home").queryName("priced").start()
    query.awaitTermination()
    assert query.lastProgress["expectations"] == {"positive price": {"epoch": 2, "total": 2}}
    assert [row.px for row in sj.read_files(tmp_path / "out").collect()] == [1]


def test_batches_meet_them_too(spark: SparkSession) -> None:
    rows = sj.stream(spark.createDataFrame([(1,), (-1,)], "px int"))
    assert rows.expect("positive", "px > 0", "drop").toDF().count() == 1
    # Without the texts of the condition, as in dead letters.
    with pytest.raises(ExpectationError, match=r"1 rows of .* 'positive' \(.*concat\(px, '…'\), '…'\)+, which"):
        rows.expect("positive", F.concat("px", F.lit("geheim")) != "-1geheim", "fail").toDF()


REFUSED: dict[str, tuple[Callable[[sj.Stream], Any], str]] = {
    "no action": (lambda s: s.expect("x", "px > 0", "warn"), "action='warn'"),
    "no name": (lambda s: s.expect(" ", "px > 0", "drop"), "is not a name"),
    "no condition": (lambda s: s.expect("x", 3, "drop"), "3 is not a condition"),
    "twice": (lambda s: s.expect("x", "px > 0", "drop").expect("x", "px > 1", "drop"), "'x' already"),
    "not diverted": (lambda s: s.expect("x", "px > 0", "divert"), r"Call divert\(errors=True\)"),
    "watermark": (lambda s: timed(s.expect("x", "px > 0", "drop")), r"expect\(…\) after withWatermark"),
    "union": (lambda s: s.expect("x", "px > 0", "drop").union(s), r"expect\(…\) on the union"),
    "explode": (lambda s: s.expect("x", F.explode(F.array("px")) > 0, "drop"), "(?i)generator|explode"),
    "no column": (lambda s: s.expect("x", "nothing > 0", "drop"), "nothing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expected_is_refused(spark: SparkSession, name: str) -> None:
    query, message = REFUSED[name]
    with pytest.raises(Exception, match=message):
        query(sj.stream(spark.createDataFrame([], SCHEMA)))


def test_two_of_one_name_in_a_query_are_refused(spark: SparkSession) -> None:
    rows = sj.stream(spark.readStream.format("rate").load())
    both: Sequence[Any] = [rows.expect("x", f"value > {n}", "drop").writeStream.format("noop") for n in (1, 2)]
    with pytest.raises(sj.AnalysisError, match="two expectations of the query are called 'x'"):
        sj.start(*both)
