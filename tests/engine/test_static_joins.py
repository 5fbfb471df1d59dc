"""Joins with static tables in running queries: windows over joined rows, joined results, and when a table is read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.engine.run import Event, EventDriver
from tests.feed import Feed, rows
from tests.laws import law
from tests.parameters import mostly_crash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.grouped import LateStream, WindowedStream
    from sparkjet.api.stream import Stream

SECOND = 1_000_000
HOWS = ["inner", "left", "left_semi", "left_anti", "cross"]


def event(time: int, key: str | None, value: int = 1) -> Event:
    return Event("all", key, time * SECOND, value)


@pytest.fixture(scope="module")
def names(spark: SparkSession) -> DataFrame:
    table = [("a", "anna"), ("b", "bert"), ("b", "bea"), (None, "nobody")]
    return spark.createDataFrame(table, "key string, name string").localCheckpoint()


def timed(stream: Stream) -> Stream:
    return stream.withWatermark("ts", "0 seconds")


def per_name(stream: Stream) -> WindowedStream:
    return stream.groupBy(sj.window("ts", "10 seconds"), "name").agg(F.sum("value").alias("total"))


def totals(driver: EventDriver, output: int = 0) -> list[Any]:
    found = driver.results(output)
    return sorted((row.window.end.second, str(row.name), row.total) for row in found)


# In CI, windows over joined rows are below, and conditions in `plan/test_static_join.py`.
@pytest.mark.long
def test_windows_over_joined_rows_and_over_a_condition(spark: SparkSession, tmp_path: Path, names: DataFrame) -> None:
    def query(stream: Stream) -> list[WindowedStream]:
        rows = timed(stream).where("value <> 0")
        conditional = rows.join(names, rows.key == names.key).groupBy(F.window("ts", "10 seconds"), names.name)
        return [per_name(rows.join(names, "key")), conditional.agg(F.sum("value").alias("total"))]

    driver = EventDriver(spark, tmp_path, query)
    driver.feed([event(1, "a"), event(2, "b", 2), event(3, None), event(4, "b", 0), event(5, "c")])
    # The join drops it, and the window closes all the same.
    driver.feed([event(10, "unknown")])
    expected = [(10, "anna", 1), (10, "bea", 2), (10, "bert", 2)]
    assert totals(driver) == totals(driver, 1) == expected


@pytest.mark.parametrize("how", mostly_crash(HOWS[:4], quick={"inner"}, crash={"left_semi"}))
def test_rows_that_a_join_drops_move_the_watermark(
    spark: SparkSession, tmp_path: Path, names: DataFrame, how: str
) -> None:
    def query(stream: Stream) -> WindowedStream:
        return timed(stream).join(names, "key", how).groupBy(sj.window("ts", "10 seconds")).count()

    driver = EventDriver(spark, tmp_path, query)
    assert driver.plan.persisted == (how in {"left_semi", "left_anti"})
    driver.feed([event(1, "b"), event(2, "c"), event(3, None)])
    driver.feed([event(10, "c")])
    driver.feed([event(10, "a"), event(4, "b"), event(4, "c"), event(20, "a")])
    assert driver.watermark is not None
    assert driver.watermark.second == 20
    # One late row of b is two after the join.
    found = {"inner": ([2, 1], 2), "left": ([4, 2], 3), "left_semi": ([1, 1], 1), "left_anti": ([2, 1], 1)}
    assert ([row["count"] for row in driver.results()], driver.late_counts["all"]) == found[how]


@pytest.mark.crash
def test_results_and_late_rows_are_joined(spark: SparkSession, tmp_path: Path, names: DataFrame) -> None:
    def query(stream: Stream) -> list[WindowedStream | LateStream]:
        counted = timed(stream).groupBy(sj.window("ts", "10 seconds"), "key").agg(F.sum("value").alias("total"))
        joined = counted.join(F.broadcast(names), "key", "left")
        again = joined.groupBy(F.window("window", "20 seconds"), F.coalesce("name", F.lit("?")).alias("name"))
        return [
            joined.where("total > 0"),
            again.agg(F.sum("total").alias("total")),
            counted.lateRows.join(names, "key", "anti"),
        ]

    driver = EventDriver(spark, tmp_path, query)
    driver.feed([event(1, "b", 2), event(2, "x", 3), event(3, "a", 0), event(11, "b", 5)])
    with driver.crash(at=EpochPhase.PREPARE):
        driver.feed([event(20, "a")])
    driver.restart()
    driver.feed([event(1, "x"), event(2, "a")])
    assert totals(driver) == [(10, "None", 3), (10, "bea", 2), (10, "bert", 2), (20, "bea", 5), (20, "bert", 5)]
    assert totals(driver, 1) == [(20, "?", 3), (20, "anna", 0), (20, "bea", 7), (20, "bert", 7)]
    assert [(row.key, row._reason) for row in driver.results(2)] == [("x", "late")]


keys = st.sampled_from(["a", "b", "c", None])
batches = st.lists(st.lists(st.builds(event, st.integers(0, 40), keys, st.integers(0, 3)), max_size=6), max_size=4)


@pytest.mark.crash
@law(3)
@given(
    batches=batches, how=st.sampled_from(["inner", "left", "left_semi", "left_anti", "cross"]), restart=st.booleans()
)
def test_however_the_stream_is_cut(
    spark: SparkSession, names: DataFrame, batches: list[list[Event]], how: str, restart: bool
) -> None:
    """Windows over joined rows are what Spark computes of all rows that are not late, at once."""

    def joined(rows: Any) -> Any:
        renamed = names.withColumnRenamed("key", "other")
        condition = None if how == "cross" else (F.col("key") == F.col("other"))
        return rows.where("value <> 1").join(renamed, condition, how)

    def query(stream: Stream) -> WindowedStream:
        rows = joined(stream.withWatermark("ts", "1 hour"))
        return rows.groupBy(sj.window("ts", "10 seconds"), "key").agg(F.sum("value").alias("total"))

    with tempfile.TemporaryDirectory() as home:
        driver = EventDriver(spark, Path(home), query)
        for batch in batches:
            driver.feed(batch)
            if restart:
                driver.restart()
        driver.close_windows()
        found = sorted((row.window.end.second, str(row.key), row.total) for row in driver.results())
    events = [each.row for batch in batches for each in batch]
    batch = spark.createDataFrame(events, "key string, value long, ts timestamp, substream string")
    expected = joined(batch).groupBy(F.window("ts", "10 seconds"), "key").agg(F.sum("value").alias("total")).collect()
    assert found == sorted((row.window.end.second, str(row.key), row.total) for row in expected)


def write(table: DataFrame, place: Path) -> None:
    """Add a file to a table as another application would, which Spark is not told of."""
    aside = place.with_name("aside")
    table.coalesce(1).write.mode("overwrite").parquet(str(aside))
    place.mkdir(exist_ok=True)
    for file in aside.glob("*.parquet"):
        shutil.copy(file, place)


TIMES: dict[str, tuple[Callable[[DataFrame, Callable[[], DataFrame]], Any], list[int]]] = {
    # What Spark does in its own queries: files are listed when the DataFrame is made.
    "given": (lambda df, make: df, [1, 1, 1]),
    "read_once": (lambda df, make: sj.read_once(make()), [1, 1, 1]),
    "read_every_epoch": (lambda df, make: sj.read_every_epoch(make), [1, 2, 2]),
}


@pytest.mark.parametrize("windows", [False, pytest.param(True, marks=pytest.mark.long)])
def test_when_a_table_is_read(spark: SparkSession, tmp_path: Path, windows: bool) -> None:
    place = tmp_path / "table"
    write(spark.sql("SELECT 'a' AS key, 'one' AS name"), place)

    def make() -> DataFrame:
        return spark.read.schema("key string, name string").parquet(str(place))

    tables = [chosen(make(), make) for chosen, _ in TIMES.values()]

    def query(stream: Stream) -> list[Any]:
        events = timed(stream)
        joined = [events.join(table, "key") for table in tables]
        return [per_name(each) if windows else each.select("ts", "name") for each in joined]

    driver = EventDriver(spark, tmp_path / "home", query)
    seen: dict[str, list[int]] = {way: [] for way in TIMES}
    for number in range(3):
        driver.feed([event(10 * number + 1, "a")])
        for output, way in enumerate(TIMES):
            seen[way].append(len(driver.results(output)))
        if number == 0:
            write(spark.sql("SELECT 'a' AS key, 'two' AS name"), place)
    driver.close_windows() if windows else None
    for output, (way, (_, expected)) in enumerate(TIMES.items()):
        counts = [sum(expected[: number + 1]) for number in range(3)]
        assert len(driver.results(output)) == counts[-1], way
        if not windows:
            assert seen[way] == counts, way


def renamed(feed: Feed, spark: SparkSession) -> Stream:
    return sj.stream(feed.read(spark)).withColumnsRenamed({"k": "key", "v": "value"})


def held(spark: SparkSession) -> set[int]:
    """Ids of the RDDs that executors hold; some are left by other tests, and collected at any time."""
    return {each.id() for each in spark.sparkContext._jsc.sc().getRDDStorageInfo()}


def test_a_held_table_is_one_copy_until_the_last_query_ends(spark: SparkSession, tmp_path: Path) -> None:
    reads = spark.sparkContext.accumulator(0)

    def noted(key: str) -> str:
        reads.add(1)
        return key

    note = F.udf(noted, "string", useArrow=False)
    before = held(spark)
    table = sj.read_once(spark.range(1).select(note(F.lit("a")).alias("key"), F.lit("anna").alias("name")))
    feed = Feed(tmp_path / "in")
    queries = []
    for name in ("once_first", "once_second"):
        joined = timed(renamed(feed, spark)).join(table, "key")
        writer = joined.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name))
        queries.append(writer.start())
    for number in range(2):
        feed.add(*rows([number], k="a", v=1))
        for query in queries:
            query.processAllAvailable()
    assert reads.value == 1
    queries[0].stop()
    feed.add(*rows([2], k="a", v=1))
    queries[1].processAllAvailable()
    assert (reads.value, len(held(spark) - before)) == (1, 1)
    queries[1].stop()
    assert not held(spark) - before
    assert [spark.table(name).count() for name in ("once_first", "once_second")] == [2, 3]


def test_a_lost_copy_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    table = sj.read_once(F.broadcast(spark.sql("SELECT 'a' AS key, 'anna' AS name").alias("t")))
    driver = EventDriver(spark, tmp_path, lambda stream: per_name(timed(stream).join(table, "key")))
    driver.feed([event(1, "a")])
    hint = table.frame()._jdf.queryExecution().analyzed()
    assert hint.nodeName() == "ResolvedHint"
    assert hint.hints().strategy().get().displayName() == "broadcast"
    copy = hint.child().rdd().id()
    # As with the loss of an executor, Spark notices when it reads the blocks.
    hint.child().rdd().unpersist(True)
    driver.feed([event(2, "a"), event(20, "a")])
    assert totals(driver) == [(10, "anna", 2)]
    assert table.frame()._jdf.queryExecution().analyzed().child().rdd().id() != copy
    table.forget()


def test_a_table_that_has_lost_a_column_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    made = [
        "SELECT 'a' AS key, 'anna' AS name",
        "SELECT 'a' AS key, 'added' AS other, 'anne' AS name",
        "SELECT 'a' AS key, 7 AS name",
    ]
    number = [0]
    table = sj.read_every_epoch(lambda: spark.sql(made[number[0]]))
    driver = EventDriver(spark, tmp_path, lambda stream: stream.join(table, "key").select("name"))
    for number[0] in range(2):
        driver.feed([event(1, "a")])
    assert [row.name for row in driver.results()] == ["anna", "anne"]
    number[0] = 2
    with pytest.raises(sj.SourceError, match=r"the column 'name' of type string is missing; .* key string, name int"):
        driver.feed([event(1, "a")])


@pytest.mark.long
def test_into_files_over_a_restart(spark: SparkSession, tmp_path: Path, names: DataFrame) -> None:
    feed = Feed(tmp_path / "in")
    batches = [("a", 1, 1), ("b", 2, 2)], [("b", 11, 3), ("c", 12, 4)], [("a", 30, 5)]
    for batch in batches:
        feed.add(*({"k": key, "t": time, "v": value} for key, time, value in batch))
        joined = timed(renamed(feed, spark)).join(names, "key", "left")
        query = (
            per_name(joined)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "home"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
    found = sj.read_files(str(tmp_path / "out")).collect()
    assert sorted((row.window.end.second, str(row.name), row.total) for row in found) == [
        (30, "anna", 1),
        (30, "bea", 2),
        (30, "bert", 2),
        (40, "None", 4),
        (40, "bea", 3),
        (40, "bert", 3),
    ]
