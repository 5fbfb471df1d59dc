"""Several results of one input, windows over windows, unions and late rows to any sink, as whole queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.writer import settings_of
from sparkjet.plan.planning import plan_of
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter


def feed(tmp_path: Path, name: str = "in") -> Feed:
    return Feed(tmp_path / name)


def files(writer: StreamWriter, path: Path) -> StreamWriter:
    return writer.format("files").option("path", path).trigger(availableNow=True).option("statePartitions", 2)


def spans(table: DataFrame, *columns: str, window: str = "window") -> list[tuple[Any, ...]]:
    """Rows with the window as seconds after the feed's start."""
    start, end = (F.unix_seconds(f"{window}.{bound}") - START for bound in ("start", "end"))
    found = [tuple(row) for row in table.select(start, end, *columns).collect()]
    return sorted(found, key=lambda row: (row[:2], repr(row)))


# In CI, random queries have several results of chained windows, and their late rows are counted.
@pytest.mark.long
def test_results_late_rows_and_chained_windows_of_one_input(spark: SparkSession, tmp_path: Path) -> None:
    given = feed(tmp_path)
    given.add(*rows([0, 3, 12], k="a", v=1), *rows([4], k="b", v=2))
    given.add(*rows([31], k="a", v=1))
    given.add(*rows([1, 28], k="a", v=9), *rows([None], k="b", v=9), *rows([70], k="b", v=3))
    passes = spark.sparkContext.accumulator(0)

    def count_calls(value: int) -> int:
        passes.add(1)
        return value

    counted = F.udf(count_calls, "long", useArrow=False)

    stream = sj.stream(given.read(spark)).withWatermark("ts", "0 seconds").withColumn("v", counted("v"))
    tens = stream.groupBy(sj.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    half_minute = sj.window("window", "30 seconds", startTime="20 seconds")
    longer = tens.where("n > 0").groupBy(half_minute, "k").agg(F.max("n").alias("most"))
    minute = sj.window("window", "1 minute", startTime="20 seconds").alias("minute")
    longest = longer.groupBy(minute).agg(F.sum("most").alias("s"))
    other = stream.where("k = 'b'").groupBy(sj.window("ts", "20 seconds", "10 seconds")).agg(F.sum("v").alias("sum"))
    query = sj.start(
        files(tens.writeStream, tmp_path / "tens").option("closeWindowsAtEnd", True),
        files(longer.writeStream, tmp_path / "longer"),
        files(longest.writeStream, tmp_path / "longest"),
        files(other.writeStream, tmp_path / "other"),
        lateRows=tens.lateRows.select("id", "_reason").writeStream.format("memory").queryName("dropped"),
        queryName="several",
        checkpointLocation=str(tmp_path / "ck"),
    )
    query.awaitTermination()
    assert query.name == "several"
    found = {name: sj.read_files(str(tmp_path / name)) for name in ("tens", "longer", "longest", "other")}
    assert spans(found["tens"], "k", "n", "total") == [
        (0, 10, "a", 2, 2), (0, 10, "b", 1, 2), (10, 20, "a", 1, 1), (30, 40, "a", 1, 1), (70, 80, "b", 1, 3),
    ]  # fmt: skip
    assert spans(found["longer"], "k", "most") == [(0, 30, "a", 2), (0, 30, "b", 1), (30, 60, "a", 1), (60, 90, "b", 1)]
    assert spans(found["longest"], "s", window="minute") == [(0, 60, 4), (60, 120, 1)]
    assert spans(found["other"], "sum") == [(-10, 10, 2), (0, 20, 2), (60, 80, 3), (70, 90, 3)]
    dropped = sorted(map(tuple, spark.table("dropped").collect()))
    assert dropped == [(5, "late"), (6, "late"), (7, "null_timestamp")]
    assert set(query.guarantees) == {"results1", "results2", "results3", "results4", "late"}
    # Two windows read the input, but each row of it goes through the user's function once.
    assert passes.value == 9


@pytest.mark.long
def test_a_second_run_goes_on_at_every_level(spark: SparkSession, tmp_path: Path) -> None:
    given = feed(tmp_path)
    given.add(*rows([0, 3, 12], v=1))
    for times in ([31], [62, 64, 66], [185]):
        stream = sj.stream(given.read(spark)).withWatermark("ts", "0 seconds")
        tens = stream.groupBy(sj.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
        minutes = tens.groupBy(sj.window("window", "1 minute", startTime="20 seconds")).agg(F.max("n").alias("most"))
        writer = files(minutes.writeStream, tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
        writer.start().awaitTermination()
        given.add(*rows(times, v=1))
    writer.option("closeWindowsAtEnd", True).start().awaitTermination()
    found = sj.read_files(str(tmp_path / "out"))
    assert spans(found, "most") == [(0, 60, 2), (60, 120, 3), (180, 240, 1)]


# Unions of what is not filtered are in engine/test_windowless.py and below.
# In CI, the pages of the guide unite streams, and so does the fuzzer, with filters before.
@pytest.mark.long
@pytest.mark.parametrize("filtered", [False, True])
def test_a_union_waits_for_the_least_of_all_inputs(spark: SparkSession, tmp_path: Path, filtered: bool) -> None:
    left, right = feed(tmp_path, "left"), feed(tmp_path, "right")
    left.add(*rows([0, 5], p="x", v=1))
    left.add(*rows([40], p="x", v=1), *rows([35], p="y", v=7))
    right.add(*rows([2], v=10), *rows([3], v=-1))
    right.add(*rows([33], v=-1), *rows([8], v=20))
    orders = sj.stream(left.read(spark)).withWatermark("ts", "0 seconds", by="p", substreams=["x"]).alias("orders")
    refunds = sj.stream(right.read(spark)).withWatermark("ts", sj.limiting_lag("10 seconds"))
    if filtered:
        refunds = refunds.where("v > 0")
    united = orders.select("ts", "v").union(refunds.select("ts", F.col("v").alias("w")))
    result = united.groupBy(sj.window("ts", "10 seconds")).agg(F.count("*").alias("n"), F.sum("v").alias("total"))
    writer = files(result.writeStream, tmp_path / "out").option("checkpointLocation", tmp_path / "ck")
    query = writer.start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    # The left input is at 35, the right one at 33 - 10; a row that was filtered out moved it there.
    assert progress["watermark"] == (START + 20) * 1_000_000
    assert {name: (s["watermark"] or 0) // 1_000_000 - START for name, s in progress["substreams"].items()} == {
        "orders/x": 40, "orders/y": 35, "2/all": 23,
    }  # fmt: skip
    first = (0, 10, 4, 32) if filtered else (0, 10, 5, 31)
    assert spans(sj.read_files(str(tmp_path / "out")), "n", "total") == [first]


def test_a_union_of_unions_by_name(spark: SparkSession, tmp_path: Path) -> None:
    streams = []
    for number in range(3):
        given = feed(tmp_path, f"in{number}")
        given.add(*rows([number, 20 + number], v=number))
        stream = sj.stream(given.read(spark)).withWatermark("ts", f"{number} seconds")
        streams.append(stream.select("v", "ts") if number else stream.select("ts", "v"))
    united = streams[0].unionByName(streams[1].unionByName(streams[2]))
    result = united.groupBy(sj.window("ts", "10 seconds")).agg(F.collect_list("v").alias("vs"))
    query = result.writeStream.format("memory").queryName("unions").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spans(spark.table("unions"), "vs") == [(0, 10, [0, 1, 2])]
    progress = query.lastProgress
    assert progress is not None
    assert sorted(progress["substreams"]) == ["1/all", "2/1/all", "2/2/all"]


# In CI, filters of SQL are among the links of `plan/test_links.py`.
@pytest.mark.parametrize("python", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_follows_a_filter_sees_none_of_the_rows_that_it_drops(
    spark: SparkSession, tmp_path: Path, python: bool
) -> None:
    given = feed(tmp_path)
    given.add(*rows([0, 1], k="x", v=2), *rows([3], k="x", v=4), *rows([25], v=0), *rows([None], v=0))

    def check_positive(value: int) -> int:
        assert value > 0
        return value

    positive = F.udf(check_positive, "long", useArrow=False) if python else F.col
    stream = sj.stream(given.read(spark)).withWatermark("ts", "0 seconds")
    kept = stream.where("v <> 0").withColumn("v", positive("v")).withColumn("half", F.expr("10 div v"))
    # Each of these fails on a row that the filters before it drop.
    strict = F.when(F.col("v") == 2, 1).otherwise(F.raise_error("dropped"))
    ones = kept.where("10 div v > 2").select("*", strict.alias("one"), "v").where(strict == 1).drop("k")
    result = ones.groupBy(sj.window("ts", "10 seconds")).agg(F.sum("half").alias("halves"), F.sum("one").alias("ones"))
    writer = result.writeStream.format("memory").queryName(f"guarded_{python}").trigger(availableNow=True)
    assert plan_of([settings_of(writer).output("results")]).persisted is python
    query = writer.start()
    query.awaitTermination()
    # The row that closes the window is one that the filter drops; dropped rows are neither late nor without a time.
    assert spans(spark.table(f"guarded_{python}"), "halves", "ones") == [(0, 10, 10, 2)]
    progress = query.lastProgress
    assert progress is not None
    assert progress["nullTimestamps"]["total"] == 0
    assert progress["acceptedRows"] == 2


def test_exploded_rows_do_not_stall_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    given = feed(tmp_path)
    given.add(*rows([0, 1], v=2), *rows([25], v=0))
    stream = sj.stream(given.read(spark)).withWatermark("ts", "0 seconds")
    repeated = stream.select("ts", F.explode(F.array_repeat("v", F.col("v").cast("int"))).alias("w"))
    result = repeated.groupBy(sj.window("ts", "10 seconds")).agg(F.sum("w").alias("total"))
    result.writeStream.format("memory").queryName("exploded").trigger(availableNow=True).start().awaitTermination()
    assert spans(spark.table("exploded"), "total") == [(0, 10, 8)]


# In CI, `engine/test_changes.py`.
@pytest.mark.long
def test_early_rows_come_with_each_batch_and_do_not_change_the_final_ones(spark: SparkSession, tmp_path: Path) -> None:
    given = feed(tmp_path)
    given.add(*rows([1, 2], k="a", v=1))
    given.add(*rows([3], k="a", v=1), *rows([15], k="b", v=1))
    stream = sj.stream(given.read(spark)).withWatermark("ts", "0 seconds")
    result = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
    writer = result.writeStream.format("memory").queryName("early").outputMode("update").trigger(availableNow=True)
    writer.option("isEarly", True)
    writer.option("closeWindowsAtEnd", True).start().awaitTermination()
    assert spans(spark.table("early"), "k", "count", "is_early") == [
        (0, 10, "a", 2, True), (0, 10, "a", 3, False), (10, 20, "b", 1, False), (10, 20, "b", 1, True),
    ]  # fmt: skip
