"""Upgrades: a query changed between two runs, against Spark's batch: the old rule up to the cut, then the new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.snapshots import DirectoryStore
from sparkjet.testing import CollectingSink, StreamDriver

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.interpreted]

Query = Callable[[Any], Any]

OLD = "ts timestamp, shop int, town string, px int, paid decimal(10,2), half float, at struct<x:int>"
NEW = "ts timestamp, shop long, town string, px long, paid decimal(20,4), half double, at struct<x:int,y:string>"
"""The same columns, wider."""
SHAPES: dict[str, Callable[[], Column | Any]] = {
    "tumbling": lambda: sj.window("ts", "10 seconds"),
    "sliding": lambda: sj.window("ts", "20 seconds", "10 seconds"),
    "coarser": lambda: sj.window("ts", "20 seconds"),
    "sessions": lambda: sj.session_window("ts", "5 seconds"),
}


def row(second: int, shop: int, town: str, px: int | None, *more: Any) -> tuple[Any, ...]:
    paid = None if px is None else Decimal(px % 100)
    return (f"2026-01-01 12:00:{second:02}", shop, town, px, paid, second / 2, (second, *more))


BEFORE = [
    *(row(1, 1, "a", 5), row(8, 1, "b", 7), row(9, 2, "a", 1)),
    *(row(14, 1, "b", None), row(21, 1, "a", 3), row(23, 2, "a", 9)),
]
AFTER = [
    *(row(24, 1, "a", 2**40, "n"), row(27, 1, "b", -3, "n"), row(31, 1, "a", 4, "n")),
    *(row(33, 3, "b", 6, "n"), row(45, 1, "b", 8, "n")),
]
"""Behind the cut, some of them of windows that are open there."""
CUT = "timestamp'2026-01-01 12:00:23'"
"""The watermark there."""


def grouped(stream: Any, shape: str | None, *keys: str) -> Any:
    if shape is None:
        return stream.groupBy(*keys)
    return stream.withWatermark("ts", "0 seconds").groupBy(SHAPES[shape](), *keys)


def begun(spark: SparkSession, home: Path, old: Query, schema: str = OLD, **options: Any) -> None:
    """A run of the old query up to the cut."""
    driver = StreamDriver(spark, old, schema, directory=home, **options)
    driver.process(BEFORE[:3])
    driver.process(BEFORE[3:])
    driver.stop()
    driver.close()


def changed(spark: SparkSession, home: Path, shape: str | None, old: Query, new: Query) -> tuple[list[Row], int]:
    """The rows of the new query, which goes on from the old one, and how many windows it has withheld."""
    mode = {"outputMode": "update"} if shape is None else {}
    begun(spark, home, old, **mode)
    driver = StreamDriver(spark, new, NEW, directory=home, onChange="apply", **mode)
    driver.process(AFTER)
    # What this run has left is of the query of today.
    driver.restart()
    if shape is not None:
        driver.close_windows()
    found = driver.results(), driver.engine.state.withheld
    driver.close()
    return found


def batch(spark: SparkSession, shape: str | None, keys: Sequence[str], *columns: Column) -> list[Row]:
    """The columns over all rows, for windows that were not final at the cut; ``old`` counts the rows from before it."""
    rows = [(*each[:-1], (*each[-1], None)[:2], old) for old in (True, False) for each in (BEFORE if old else AFTER)]
    frame = spark.createDataFrame(rows, f"{NEW.replace('ts timestamp', 'ts string')}, old boolean")
    frame = frame.withColumn("ts", F.col("ts").cast("timestamp"))
    if shape is None:
        found = frame.groupBy(*keys).agg(*columns)
    else:
        lengths = {"tumbling": ("10 seconds",), "coarser": ("20 seconds",), "sliding": ("20 seconds", "10 seconds")}
        window = F.window("ts", *lengths[shape]) if shape in lengths else F.session_window("ts", "5 seconds")
        found = frame.groupBy(window.alias("w"), *keys).agg(*columns).where(f"w.end > {CUT}")
    return found.collect()


def unless_old(column: Column) -> Column:
    """Null where a row is from before the cut."""
    return F.when(F.count_if("old") == 0, column)


def same(found: Sequence[Row], expected: Sequence[Row]) -> None:
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, map(tuple, expected)))


@pytest.mark.parametrize(
    "shape",
    # Rolling aggregates lack rows and are combined below, as sessions are.
    ["sliding", *(pytest.param(shape, marks=pytest.mark.long) for shape in ("sessions", "tumbling", None))],
)
def test_all_that_can_be_made_of_the_state(spark: SparkSession, tmp_path: Path, shape: str | None) -> None:
    def old(stream: Any) -> Any:
        kept = F.count("*").alias("n"), F.sum("px").alias("px"), F.max("at").alias("at"), F.sum("paid").alias("paid")
        kept += (F.max("half").alias("half"), F.avg("paid").alias("mean"))
        return grouped(stream, shape, "shop", "town").agg(F.avg("px").alias("gone"), *kept)

    def columns(least: Callable[[Column], Column]) -> list[Column]:
        kept = F.max("at").alias("at"), F.sum("paid").alias("paid"), F.sum("px").alias("px"), F.count("*").alias("n")
        kept += (F.avg("paid").alias("mean"), F.max("half").alias("half"))
        return [least(F.coalesce(F.min("px"), F.lit(0))).alias("least"), *kept]

    def new(stream: Any) -> Any:
        return grouped(stream, shape, "shop", "town").agg(*columns(lambda column: column))

    found, _ = changed(spark, tmp_path, shape, old, new)
    expected = batch(spark, shape, ["shop", "town"], *columns(unless_old))
    if shape is None:
        # Of keys that have changed.
        expected = [each for each in expected if (each.shop, each.town) != (2, "a")]
    same(found, expected)


@pytest.mark.parametrize(
    "shape",
    # Coarser windows below drop a key too.
    ["sessions", None, *(pytest.param(shape, marks=pytest.mark.long) for shape in ("sliding", "tumbling"))],
)
def test_partial_results_of_a_dropped_key_are_combined(spark: SparkSession, tmp_path: Path, shape: str | None) -> None:
    """One of a wider column, and one that does not deduct."""
    columns = F.max("px").alias("most"), F.count("*").alias("n"), F.sum(F.col("px") / 2).alias("half")
    keys = () if shape == "sliding" else ("shop",)
    found, withheld = changed(
        spark,
        tmp_path,
        shape,
        lambda stream: grouped(stream, shape, "town", "shop").agg(*columns),
        lambda stream: grouped(stream, shape, *keys).agg(*columns),
    )
    expected = batch(spark, shape, keys, *columns)
    if shape == "sessions":
        # What is open and began before the cut may lack what has closed.
        expected = [each for each in expected if each[0].start.second >= 23]
    assert withheld == (shape == "sessions")
    # Of keys that have changed.
    same(found, expected if shape is not None else [each for each in expected if each.shop != 2])


def test_sessions_that_are_open_merge_under_a_longer_gap(spark: SparkSession, tmp_path: Path) -> None:
    """Those that may have been one with a closed one are withheld: they start less than the longer gap before it."""
    seen = [(5, 1), (12, 2), (31, 2), (34, 1), (40, 1), (40, 2)]
    # Of the first key 34, 40 and 47 are one now; of the second 31 is none with 12, which nobody knows.
    later = [(47, 1), (32, 3), (45, 2), (60, 3), (90, 1)]

    def query(gap: str) -> Query:
        def results(stream: Any) -> Any:
            windows = stream.withWatermark("ts", "10 seconds").groupBy(sj.session_window("ts", gap), "shop")
            return windows.agg(F.count("*").alias("n"), F.sum("px").alias("px"))

        return results

    def at(pairs: Sequence[tuple[int, int]]) -> list[tuple[Any, ...]]:
        return [(f"2026-01-01 12:{second // 60:02}:{second % 60:02}", shop, second) for second, shop in pairs]

    schema, sink = "ts timestamp, shop int, px long", CollectingSink()
    driver = StreamDriver(spark, query("5 seconds"), schema, directory=tmp_path, sinks=[sink])
    driver.process(at(seen))
    driver.stop()
    driver.close()
    before = sink.rows()
    said = r"of 5 seconds → a gap of 8 seconds: merged \(sessions that start before .* 12:00:33 UTC are withheld"
    with pytest.raises(sj.ChangedQueryError, match=said):
        StreamDriver(spark, query("8 seconds"), schema, directory=tmp_path, sinks=[sink])
    with pytest.raises(sj.ChangedQueryError, match="what is one session cannot be taken apart"):
        StreamDriver(spark, query("4 seconds"), schema, directory=tmp_path, sinks=[sink], onChange="apply")
    driver = StreamDriver(spark, query("8 seconds"), schema, directory=tmp_path, sinks=[sink], onChange="apply")
    with driver.crash(at=sj.EpochPhase.PREPARE):
        driver.process(at(later[:2]))
    driver.restart()
    with driver.crash(at=sj.EpochPhase.DECIDE):
        driver.process()
    driver.restart()
    driver.process(at(later[2:]))
    driver.close_windows()
    assert driver.engine.state.withheld == 2
    driver.close()
    found = [(each[0].start.minute * 60 + each[0].start.second, *each[1:]) for each in sink.rows()]
    kept = [(each[0].start.second, *each[1:]) for each in before]
    assert sorted(kept) == [(5, 1, 1, 5), (12, 2, 1, 12)]
    frame = spark.createDataFrame(at([*seen, *later]), "ts string, shop int, px long")
    windows = frame.groupBy(F.session_window(F.col("ts").cast("timestamp"), "8 seconds").alias("w"), "shop")
    start = F.minute("w.start") * 60 + F.second("w.start")
    batch = windows.agg(F.count("*").alias("n"), F.sum("px").alias("px")).select(start.alias("at"), "shop", "n", "px")
    assert sorted(found) == sorted([*kept, *map(tuple, batch.where("at >= 33").collect())])


def test_coarser_windows_beside_other_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    total, most = F.sum("px").alias("px"), F.max("px")
    found, withheld = changed(
        spark,
        tmp_path,
        "coarser",
        lambda stream: grouped(stream, "tumbling", "shop", "town").agg(F.count("*").alias("n"), total),
        lambda stream: grouped(stream, "coarser", "shop").agg(total, most.alias("most")),
    )
    # The one that is open at the cut begins with a frame of the old windows.
    assert withheld == 0
    same(found, batch(spark, "coarser", ["shop"], total, unless_old(most).alias("most")))


def test_what_lacks_rows_is_known_at_the_next_change_too(spark: SparkSession, tmp_path: Path) -> None:
    def query(*columns: Column) -> Query:
        return lambda stream: stream.groupBy("shop").agg(*columns)

    count, most, total = F.count("*").alias("n"), F.max("px").alias("most"), F.sum("px").alias("px")
    begun(spark, tmp_path, query(count), outputMode="update")
    second = StreamDriver(spark, query(most, count), OLD, directory=tmp_path, onChange="apply", outputMode="update")
    second.process([row(30, 1, "a", 2), row(31, 3, "a", 3)])
    assert second.results() == [Row(shop=1, most=None, n=5), Row(shop=3, most=3, n=1)]
    second.stop()
    second.close()
    third = StreamDriver(spark, query(total, most), OLD, directory=tmp_path, onChange="apply", outputMode="update")
    third.process([row(40, 1, "a", 4), row(41, 3, "a", 5), row(42, 4, "a", 6)])
    found = sorted(third.results(), key=lambda each: each.shop)
    assert found == [Row(shop=1, px=None, most=None), Row(shop=3, px=None, most=5), Row(shop=4, px=6, most=6)]
    third.stop()
    third.close()
    # Without a change.
    fourth = StreamDriver(spark, query(total, most), OLD, directory=tmp_path, outputMode="update")
    fourth.process([row(50, 3, "a", 7)])
    assert fourth.results() == [Row(shop=3, px=None, most=7)]
    fourth.close()
    # What is read is that of the query that has been added to.
    with pytest.raises(sj.ChangedQueryError, match="another meaning"):
        StreamDriver(
            spark,
            lambda stream: query(total, most)(stream.withColumn("px", F.col("px") + 1)),
            OLD,
            directory=tmp_path,
            onChange="apply",
            outputMode="update",
        )


class Dying(DirectoryStore):
    """A store whose driver dies before it puts a record."""

    def put(self, slot: int, content: bytes) -> bool:
        raise KeyboardInterrupt


@pytest.mark.crash
def test_a_crash_before_and_after_the_takeover(spark: SparkSession, tmp_path: Path) -> None:
    old_columns = F.sum("px").alias("px"), F.count("*").alias("n")
    new_columns = F.max("px").alias("most"), F.sum("px").alias("px")

    def old(stream: Any) -> Any:
        return grouped(stream, "sliding", "shop").agg(*old_columns)

    def new(stream: Any) -> Any:
        return grouped(stream, "sliding", "shop").agg(*new_columns)

    begun(spark, tmp_path, old)
    sink = CollectingSink()
    with pytest.raises(KeyboardInterrupt):
        StreamDriver(spark, new, NEW, directory=tmp_path, onChange="apply", store=Dying(tmp_path / "snapshots"))
    # Taken over, and no epoch yet: it can still be taken back.
    StreamDriver(spark, new, NEW, directory=tmp_path, onChange="apply").close()
    StreamDriver(spark, old, OLD, directory=tmp_path).close()
    driver = StreamDriver(spark, new, NEW, directory=tmp_path, onChange="apply", sinks=[sink])
    with driver.crash(at=sj.EpochPhase.PREPARE):
        driver.process(AFTER[:3])
    driver.restart()
    with driver.crash(at=sj.EpochPhase.DECIDE):
        driver.process()
    driver.restart()
    driver.process(AFTER[3:])
    driver.close_windows()
    driver.close()
    most = unless_old(F.max("px")).alias("most")
    same(sink.rows(), batch(spark, "sliding", ["shop"], most, F.sum("px").alias("px")))
    with pytest.raises(sj.ChangedQueryError, match=r"key shop: bigint → int: refused"):
        StreamDriver(spark, old, OLD, directory=tmp_path)
