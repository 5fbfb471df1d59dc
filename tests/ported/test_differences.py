"""Differences of a ported query, row by row of the table in docs/guide/porting.md: both results side by side."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import sparkjet as sj
from tests.ported import boats, freight_queries, installed_state, invitations, test_ported
from tests.ported.both import Both
from tests.ported.differences import SCHEMA, at

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Both:
    return Both(spark, tmp_path, SCHEMA)


def windows(rows: list[Row], name: str = "window", column: str = "n") -> list[tuple[str, str, int]]:
    """Start, end and value of each result."""
    return sorted((str(row[name].start)[14:], str(row[name].end)[14:], row[column]) for row in rows)


def counted(df: Any) -> Any:
    return df.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))


@pytest.mark.long
def test_a_lagging_partition_loses_nothing(both: Both) -> None:
    both.arrive(
        [at(1), at(40)], [at(41)], [at(2, p="1"), at(3, p="1")], [at(50), at(51, p="1")], [at(90), at(91, p="1")]
    )

    def by_partition(df: sj.Stream) -> Any:
        marked = df.withWatermark("ts", "5 seconds", by="p", substreams=["0", "1"])
        return marked.groupBy(F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))

    assert ("00:00", "00:10", 1) in windows(both.spark(counted))
    assert ("00:00", "00:10", 3) in windows(both.sparkjet(by_partition))


@pytest.mark.long
def test_the_last_windows_are_emitted_at_the_end_of_the_input(both: Both) -> None:
    both.arrive([at(1), at(12)])
    assert windows(both.spark(counted)) == []
    assert windows(both.sparkjet(counted)) == []
    assert windows(both.sparkjet(counted, closeWindowsAtEnd=True)) == [("00:00", "00:10", 1), ("00:10", "00:20", 1)]


@pytest.mark.long
def test_a_late_row_is_in_none_of_its_windows(both: Both) -> None:
    """Spark drops it from the windows that have closed, and counts it in the others."""

    def sliding(df: Any) -> Any:
        windowed = df.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds", "5 seconds"))
        return windowed.agg(F.count("*").alias("n"))

    both.arrive([at(1), at(2), at(11)], [at(12)], [at(4)], [at(60)], [at(61)])
    theirs, ours = windows(both.spark(sliding)), windows(both.sparkjet(sliding))
    first = [("59:55", "00:05", 2)]
    assert ("00:00", "00:10", 3) in theirs
    assert ("00:00", "00:10", 2) in ours
    assert [row for row in theirs if row[1] == "00:05"] == [row for row in ours if row[1] == "00:05"] == first


@pytest.mark.long
def test_two_events_exactly_one_gap_apart_are_two_sessions(both: Both) -> None:
    def sessions(df: Any) -> Any:
        windowed = df.withWatermark("ts", "0 seconds").groupBy("k", F.session_window("ts", "5 seconds"))
        return windowed.agg(F.count("*").alias("n"))

    both.arrive([at(1), at(6)], [at(60)], [at(61)])
    assert windows(both.spark(sessions), "session_window") == [("00:01", "00:11", 2)]
    assert windows(both.sparkjet(sessions), "session_window") == [("00:01", "00:06", 1), ("00:06", "00:11", 1)]


@pytest.mark.long
def test_first_and_last_go_by_event_time(both: Both) -> None:
    def ends(df: Any) -> Any:
        windowed = df.withWatermark("ts", "10 seconds").groupBy(F.window("ts", "10 seconds"))
        return windowed.agg(F.first("v").alias("first"), F.last("v").alias("last"), F.collect_list("v").alias("all"))

    both.arrive([at(5, v=5), at(1, v=1)], [at(3, v=3)], [at(60)], [at(61)])

    def of_first(rows: list[Row]) -> list[tuple[int, int, list[int]]]:
        return [(row["first"], row["last"], row["all"]) for row in rows if str(row["window"].start)[14:] == "00:00"]

    assert of_first(both.spark(ends)) == [(5, 3, [5, 1, 3])]
    assert of_first(both.sparkjet(ends)) == [(1, 5, [1, 3, 5])]


def test_a_window_closes_in_the_batch_that_moves_the_watermark(both: Both) -> None:
    """Spark emits it in the next one: its watermark moves between batches."""
    epochs: list[tuple[int, int]] = []

    def batches(rows: Any, epoch: int) -> None:
        epochs.append((epoch, rows.count()))

    both.arrive([at(1)], [at(30)], [at(31)])
    source = both.source()
    counted(source).writeStream.foreachBatch(batches).trigger(availableNow=True).start().awaitTermination()
    theirs, epochs = dict(epochs), []
    counted(sj.stream(source)).writeStream.foreachBatch(batches).trigger(availableNow=True).start().awaitTermination()
    assert [epoch for epoch, rows in theirs.items() if rows] == [2]
    assert [rows for _, rows in epochs] == [1]


def test_sketches_are_others_with_other_estimates(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(0) AS ts, id AS v FROM range(200000, 203000)")

    def estimates(df: Any) -> Any:
        windowed = df.withWatermark("ts", "1 second").groupBy(F.window("ts", "10 seconds"))
        return windowed.agg(F.approx_count_distinct("v").alias("n"), F.percentile_approx("v", 0.5, 20).alias("median"))

    (theirs,), (ours,) = estimates(rows).collect(), estimates(sj.stream(rows)).toDF().collect()
    assert (theirs.n, theirs.median) != (ours.n, ours.median)
    for found in (theirs, ours):
        assert found.n == pytest.approx(3000, rel=0.1)
        assert found.median == pytest.approx(201500, abs=300)


def test_a_sum_that_overflows_is_an_error(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(0) AS ts, 9223372036854775807 AS v FROM range(2)")

    def sums(df: Any) -> Any:
        return df.withWatermark("ts", "1 second").groupBy(F.window("ts", "10 seconds")).agg(F.sum("v").alias("s"))

    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert [row.s for row in sums(rows).collect()] == [-2]
        with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
            sums(sj.stream(rows)).toDF()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_a_row_without_an_event_time_is_delivered(both: Both, spark: SparkSession) -> None:
    both.arrive([at(1), {**at(2), "ts": None}])
    assert windows(both.batch(counted)) == [("00:00", "00:10", 1)]
    batch = sj.stream(spark.read.schema(SCHEMA).json(str(both.directory)))
    assert windows(counted(batch).toDF().collect()) == [("00:00", "00:10", 1)]
    assert [row["_reason"] for row in counted(batch).lateRows.toDF().collect()] == ["null_timestamp"]


def test_batches_are_counted_from_zero_and_epochs_from_one(both: Both) -> None:
    numbers: list[int] = []

    def run(rows: Any) -> list[int]:
        numbers.clear()
        writer = rows.writeStream.foreachBatch(lambda _, number: numbers.append(number))
        writer.trigger(availableNow=True).start().awaitTermination()
        return list(numbers)

    source = both.arrive([at(1)], [at(2)]).source()
    assert run(source) == [0, 1]
    assert run(sj.stream(source)) == [1, 2]


def test_an_earlier_checkpoint_is_not_read(both: Both, spark: SparkSession, tmp_path_factory: Any) -> None:
    place = tmp_path_factory.mktemp("earlier")
    delivered: list[int] = []

    def run(rows: Any, checkpoint: str) -> list[int]:
        delivered.clear()
        writer = rows.writeStream.foreachBatch(lambda batch, _: delivered.extend(row.v for row in batch.collect()))
        writer.option("checkpointLocation", str(place / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
        return sorted(delivered)

    source = both.arrive([at(1, v=1), at(2, v=2)]).source()
    assert run(source, "spark") == [1, 2]
    assert run(source, "spark") == []
    assert run(sj.stream(source), "sparkjet") == [1, 2]
    assert run(sj.stream(source), "sparkjet") == []


def test_the_page_counts_the_ports(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs" / "guide" / "porting-queries.md").read_text()
    with_state = sum(len(module.PORTS) for module in (boats, freight_queries, installed_state, invitations))
    assert f"{len(test_ported.PORTS)} queries with windows or without any, and {with_state} with state" in page


@pytest.mark.long
@pytest.mark.logs_errors
def test_a_function_of_foreach_batch_that_raises_is_called_again(both: Both, tmp_path: Path) -> None:
    both.arrive([at(1)])

    def calls(df: Any, home: str) -> list[int]:
        called: list[int] = []

        def write(_rows: object, number: int) -> None:
            called.append(number)
            if len(called) < 3:
                raise ConnectionError("the table is away")

        writer = df.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / home))
        query = writer.trigger(availableNow=True).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        return called

    assert calls(both.source(), "spark") == [0]
    assert calls(sj.stream(both.source()), "sparkjet") == [1, 1, 1]
