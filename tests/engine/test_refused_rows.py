"""Rows that a sink refuses: after divert(…) they are dead letters, and the epoch goes on without them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import RefusedRowsError
from sparkjet.plan.outputs import Output
from sparkjet.testing import CollectingSink, StreamDriver

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle, TransactionId

SCHEMA = "ts timestamp, k string, n int"


class PickySink(CollectingSink):
    """Takes no row whose ``k`` is ``bad``, and of each ``n`` one row only."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[str] = []

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        self.transactions.append(str(transaction))
        if rows.where("k = 'bad'").count():
            raise RefusedRowsError("k must be good")
        if rows.groupBy("n").count().where("count > 1").count():
            raise RefusedRowsError("n is there twice")
        return super().prepare(rows, transaction)


def rows_of(*given: tuple[str, int]) -> list[tuple[str, str, int]]:
    return [(f"2026-01-01 12:00:{n % 60:02}", k, n) for k, n in given]


def driver_of(spark: SparkSession, query: Any) -> StreamDriver:
    return StreamDriver(spark, query, SCHEMA, sinks=[PickySink(), CollectingSink()])


def test_the_others_arrive_and_what_conflicts_with_an_earlier_row_does_not(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True)
        shaped = found.withColumn("n", F.expr("CAST(10 / n AS INT)")).select("k", "n")
        return [shaped, found.deadLetters]

    driver = driver_of(spark, query)
    given = [("good", 1), ("good", 2), ("bad", 5), ("good", 0), ("same", 2), ("bad", 10)]
    driver.process(rows_of(*given))
    assert sorted(tuple(row) for row in driver.results()) == [("good", 5), ("good", 10)]
    found = Counter((row.k, row.n, row._stage, row._error, row._message) for row in driver.results(1))
    condition = "SPARKJET_SINK.REFUSED_ROWS"
    (failed,) = [row for row in found if row[3] == "DIVIDE_BY_ZERO"]
    assert failed[:2] == ("good", 0)
    del found[failed]
    # With the columns as they were at divert.
    assert found == Counter(
        [
            ("bad", 5, "sink out0", condition, f"[{condition}] k must be good"),
            ("bad", 10, "sink out0", condition, f"[{condition}] k must be good"),
            ("same", 2, "sink out0", condition, f"[{condition}] n is there twice"),
        ]
    )
    sink = driver.sinks[0]
    assert isinstance(sink, PickySink)
    assert len({*sink.transactions}) == len(sink.transactions)
    driver.restart()
    driver.process(rows_of(("good", 7)))
    assert sorted(row.n for row in driver.results()) == [1, 5, 10]


def test_results_that_are_refused_have_their_own_columns(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        windows = stream.withWatermark("ts", 0).groupBy(F.window("ts", "10 seconds"), "k").agg(F.sum("n").alias("n"))
        found = windows.divert(errors=True).expect("n", "n > 0", "divert").withColumn("tenth", F.expr("10 / (n - 7)"))
        return [found.select("k", "n"), found.deadLetters]

    driver = driver_of(spark, query)
    driver.process(rows_of(("good", 1), ("bad", 2), ("worse", -57), ("none", 7), ("end", 40)))
    assert [tuple(row) for row in driver.results()] == [("good", 1)]
    found = Counter((row.k, row.n, row._stage) for row in driver.results(1))
    place = "withColumn tenth: 10 / (n - 7)"
    assert found == Counter([("bad", 2, "sink out0"), ("worse", -57, "expect n"), ("none", 7, place)])
    assert driver.engine.record.expectations == {"n": 1}


def test_without_divert_the_query_ends(spark: SparkSession) -> None:
    driver = StreamDriver(spark, lambda stream: [stream.select("k", "n")], SCHEMA, sinks=[PickySink()])
    with pytest.raises(RefusedRowsError, match="k must be good"):
        driver.process(rows_of(("good", 1), ("bad", 2)))


@pytest.mark.crash
@pytest.mark.interpreted
def test_progress_counts_them_and_unmet_expectations(spark: SparkSession, tmp_path: Path) -> None:
    count = 10_000
    given = spark.range(1, count + 1).select(
        F.expr("IF(id = 5000, 'bad', 'good')").alias("k"), F.col("id").cast("int").alias("n")
    )
    given.write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema("k string, n int").parquet(str(tmp_path / "in"))
    found = sj.stream(read).divert(errors=True).expect("small", f"n < {count}", "divert")
    sink = PickySink()
    writer = found.writeStream.format(sink).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", tmp_path / "home").option("deadLettersPath", tmp_path / "dead")
    query = writer.start()
    query.awaitTermination()
    assert query.lastProgress is not None
    assert query.lastProgress["failedRows"] == {"expect small": 1, "sink results": 1}
    assert sorted(row.n for row in sj.read_files(tmp_path / "dead").collect()) == [count // 2, count]
    assert sorted(row.n for row in sink.rows()) == [n for n in range(1, count) if n != count // 2]


def test_too_many_end_the_query(spark: SparkSession) -> None:
    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True, maxFailures=1)
        return [found.select("k", "n"), found.deadLetters]

    driver = driver_of(spark, query)
    with pytest.raises(sj.FailuresError, match="2 rows of the epoch have failed"):
        driver.process(rows_of(("good", 1), ("bad", 2), ("bad", 3)))


def test_rows_that_have_failed_are_counted_also_where_a_sink_has_not_read_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a sink of sparkjet's own, for which no batch is held.
    monkeypatch.setattr(Output, "reads_once", True)

    def query(stream: sj.Stream) -> list[Any]:
        found = stream.divert(errors=True)
        return [found.withColumn("n", F.expr("CAST(10 / n AS INT)")).select("k", "n"), found.deadLetters]

    driver = driver_of(spark, query)
    for given, letters in (([("good", 1), ("bad", 5), ("good", 0)], 2), ([("bad", 3)], 3), ([("good", 3)], 3)):
        driver.process(rows_of(*given))
        assert len(driver.results(1)) == letters
