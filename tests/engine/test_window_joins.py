"""Results of windows joined by their window: what a naive join of both sides' rows gives, and Spark's batch join."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.engine.run import SCHEMA, Event, EventDriver
from tests.feed import Feed, rows
from tests.laws import law, only_examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.stream import Stream

SECOND = 1_000_000
HOWS = ("inner", "left", "right", "outer", "left_semi", "left_anti")
Epoch = tuple[list[Event], list[Event]]


def event(time: int, key: str | None = "k", value: int = 1, substream: str = "all") -> Event:
    return Event(substream, key, time * SECOND, value)


def timed(stream: Stream, lag: str = "0 seconds", **settings: Any) -> Stream:
    return stream.withWatermark("ts", lag, **settings)


def summed(rows: Any, name: str, *window: str) -> Any:
    """The sum of a stream, or of a batch DataFrame, by window and key."""
    return rows.groupBy(F.window("ts", *(window or ("10 seconds",))), "key").agg(F.sum("value").alias(name))


def found(driver: EventDriver, output: int = 0) -> list[Any]:
    return sorted(map(plain, driver.results(output)), key=str)


def plain(row: Any) -> tuple[Any, ...]:
    """A row with the ends of its windows as seconds."""
    return tuple(each.end.minute * 60 + each.end.second if hasattr(each, "end") else each for each in row)


def naive(left: Sequence[Any], right: Sequence[Any], how: str) -> list[Any]:
    """A join of rows (end, key, value) by their ends and keys; null equals nothing."""

    def matches(row: Any, others: Sequence[Any]) -> list[Any]:
        return [other for other in others if row[1] is not None and other[:2] == row[:2]]

    both = [(*row, other[2]) for row in left for other in matches(row, right)]
    lefts = [(*row, None) for row in left if not matches(row, right)]
    rights = [(*row[:2], None, row[2]) for row in right if not matches(row, left)]
    joined = {
        "inner": both,
        "left": both + lefts,
        "right": both + rights,
        "outer": both + lefts + rights,
        "left_semi": [row for row in left if matches(row, right)],
        "left_anti": [row for row in left if not matches(row, right)],
    }
    return sorted(joined[how], key=str)


def of_two_streams(lag: str, hows: Sequence[str] = HOWS) -> Callable[..., list[WindowedStream]]:
    def query(*streams: Stream) -> list[WindowedStream]:
        timed_streams = [timed(each, lag, by="substream", substreams=["a"]) for each in streams]
        sides = [summed(each, name) for each, name in zip(timed_streams, "xy", strict=True)]
        return [*sides, *(sides[0].join(sides[1], ["window", "key"], how) for how in hows)]

    return query


keys = st.sampled_from(["a", "b", None])
events = st.lists(
    st.builds(event, st.integers(0, 45), keys, st.integers(0, 3), st.sampled_from(["a", "b"])), max_size=5
)
epochs = st.lists(st.tuples(events, events), min_size=1, max_size=4)
# Nothing on the right until the left has passed two windows; then late rows on both sides.
LAGGING: list[Epoch] = [
    ([event(1, "a", 1, "a"), event(12, "b", 2, "a"), event(30, "a", 3, "a")], []),
    ([event(31, None, 1, "a")], [event(2, "a", 4, "a"), event(13, None, 5, "a")]),
    ([], [event(25, "b", 1, "a")]),
    ([event(3, "a", 9, "a"), event(3, "a", 9, "b")], [event(4, "a", 9, "a"), event(45, "a", 7, "a")]),
    ([event(45, "a", 2, "a")], []),
]


# In CI, the fuzzer joins windows at random, and three streams are joined below.
@pytest.mark.long
@only_examples()
@given(epochs=epochs)
@example(epochs=LAGGING)
def test_a_join_is_that_of_what_both_sides_give(spark: SparkSession, epochs: list[Epoch]) -> None:
    check_against_sides(spark, epochs, ("outer", "left_anti"), restart=False)


@pytest.mark.long
@law(3)
@given(epochs=epochs)
@example(epochs=LAGGING)
def test_every_join_is_that_of_what_both_sides_give(spark: SparkSession, epochs: list[Epoch]) -> None:
    check_against_sides(spark, epochs, HOWS, restart=True)


def check_against_sides(spark: SparkSession, epochs: list[Epoch], hows: Sequence[str], *, restart: bool) -> None:
    """After each epoch, all windows that are final on both sides have been joined."""

    def check() -> None:
        sides = found(driver), found(driver, 1)
        assert [found(driver, number + 2) for number in range(len(hows))] == [naive(*sides, how) for how in hows]

    with tempfile.TemporaryDirectory() as home:
        driver = EventDriver(spark, Path(home), of_two_streams("0 seconds", hows), inputs=2)
        for epoch in epochs:
            driver.feed(*epoch)
            check()
            if restart:
                driver.restart()
        driver.close_windows()
        check()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["one batch", "many", "restarts"])
@only_examples()
@given(epochs=epochs)
@example(epochs=LAGGING)
def test_without_late_rows_it_is_what_spark_computes(spark: SparkSession, epochs: list[Epoch], mode: str) -> None:
    """In CI, random queries with each of these joins are (`tests/differential`)."""
    cut = [joined_up(epochs)] if mode == "one batch" else epochs
    with tempfile.TemporaryDirectory() as home:
        driver = EventDriver(spark, Path(home), of_two_streams("1 hour"), inputs=2)
        for epoch in cut:
            driver.feed(*epoch)
            if mode == "restarts":
                driver.restart()
        driver.close_windows()
        joined = [found(driver, number + 2) for number in range(len(HOWS))]
    batches = [spark.createDataFrame([each.row for each in side], SCHEMA) for side in joined_up(epochs)]
    sides = [summed(each, name).localCheckpoint() for each, name in zip(batches, "xy", strict=True)]
    expected = [sides[0].join(sides[1], ["window", "key"], how) for how in HOWS]
    assert joined == [sorted(map(plain, each.collect()), key=str) for each in expected]


def joined_up(epochs: list[Epoch]) -> Epoch:
    left, right = ([each for epoch in epochs for each in epoch[side]] for side in (0, 1))
    return left, right


@pytest.mark.crash
def test_a_side_that_is_idle_or_behind(spark: SparkSession, tmp_path: Path) -> None:
    def query(left: Stream, right: Stream) -> WindowedStream:
        idle = timed(right.alias("clicks"), idleTimeout="1 minute")
        return summed(timed(left.alias("views")), "x").join(summed(idle, "y"), ["window", "key"], "left")

    driver = EventDriver(spark, tmp_path, query, inputs=2)
    driver.feed([event(1), event(20)], [event(1, "k", 5)])
    assert found(driver) == []
    driver.advance("2 minutes")
    assert found(driver) == [(10, "k", 1, 5)]
    driver.feed([event(30)], [event(22), event(3)])
    assert driver.late_counts == {"clicks/all": 1}
    assert [each for each in found(driver) if each[0] > 10] == []
    driver.feed([], [event(30)])
    assert found(driver) == [(10, "k", 1, 5), (30, "k", 1, 1)]


# In CI, random queries join what has been joined and grouped.
@pytest.mark.long
def test_three_streams_shaped_and_grouped_again(spark: SparkSession, tmp_path: Path) -> None:
    def query(*streams: Stream) -> list[WindowedStream]:
        sides = [summed(timed(each), name) for each, name in zip(streams, "xyz", strict=True)]
        renamed = {"window": "w", "key": "k`e.y"}
        shaped = [each.where("key <> 'no'").withColumnsRenamed(renamed) for each in sides]
        joined = reduce(lambda one, other: one.join(other, ["w", "k`e.y"], "outer"), shaped)
        again = joined.groupBy(F.window("w", "20 seconds")).agg(F.sum("x"), F.sum("y"), F.sum("z"))
        both = (F.col("x") + F.col("z")).alias("both")
        return [joined.select("w", "`k``e.y`", both).where("both IS NOT NULL"), again]

    driver = EventDriver(spark, tmp_path, query, inputs=3)
    driver.feed([event(1), event(2, "no")], [event(2, "b", 2)], [event(3), event(4, "b", 3)])
    with driver.crash(at=EpochPhase.PREPARE):
        driver.feed([event(30)], [event(30)], [event(30)])
    driver.restart()
    driver.feed()
    assert found(driver) == [(10, "k", 2)]
    assert found(driver, 1) == [(20, 1, 2, 4)]


@pytest.mark.long
def test_the_most_frequent_keys_keep_their_ties(spark: SparkSession, tmp_path: Path) -> None:
    """The keys with the most events in each sliding window, all of them, by two joins with the windows' maximum."""

    def query(events: Stream) -> list[WindowedStream]:
        counts = timed(events).groupBy(F.window("ts", "10 seconds", "5 seconds"), "key").agg(F.count("*").alias("num"))
        # As long as the slide, these windows end where the sliding ones do.
        most = counts.groupBy(F.window("window", "5 seconds")).agg(F.max("num").alias("most"))
        condition = F.expr("each.window.end = top.window.end AND num >= most")
        by_field = F.col("each.window")["end"] == F.col("top.window").getField("end")
        return [
            counts.alias("each").join(most.alias("top"), condition).select("each.window", "key", "num"),
            counts.alias("each").join(most.alias("top"), [by_field, F.col("num") == F.col("most")], "semi"),
        ]

    driver = EventDriver(spark, tmp_path, query)
    driver.feed([event(1, "a"), event(2, "b"), event(7, "c"), event(8, "c"), event(9, "a")])
    driver.feed([event(30, "a")])
    expected = [(10, "a", 2), (10, "c", 2), (15, "c", 2), (5, "a", 1), (5, "b", 1)]
    assert found(driver) == found(driver, 1) == expected


@pytest.mark.crash
def test_sessions_and_a_static_table(spark: SparkSession, tmp_path: Path) -> None:
    names = spark.sql("SELECT 'k' AS key, 'kate' AS name")

    def query(left: Stream, right: Stream) -> WindowedStream:
        sides = [
            timed(each).groupBy(F.session_window("ts", "5 seconds").alias("s"), "key").agg(F.count("*").alias(name))
            for each, name in ((left, "x"), (right, "y"))
        ]
        return sides[0].join(sides[1], ["s", "key"], "outer").join(names, "key").select("s", "name", "x", "y")

    driver = EventDriver(spark, tmp_path, query, inputs=2)
    driver.feed([event(1), event(3), event(11)], [event(1), event(2), event(3), event(12)])
    driver.feed([event(30)], [event(30)])
    assert found(driver) == [(16, "kate", 1, None), (17, "kate", None, 1), (8, "kate", 2, 3)]


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no window": (lambda a, b: a.join(b, "key"), "'window' is not compared with 'window'"),
    "no condition": (lambda a, b: a.join(b), "on=None must name columns that both results have"),
    "cross": (lambda a, b: a.join(b, "window", "cross"), "how='cross': results of windows are joined by their window"),
    "replaced": (
        lambda a, b: a.withColumn("window", F.struct(F.lit(1).alias("start"), F.lit(2).alias("end"))).join(b, "window"),
        "or has been replaced",
    ),
    "half a condition": (
        lambda a, b: a.alias("a").join(b.alias("b"), F.expr("a.window = b.window OR a.key = b.key")),
        "'window' is not compared",
    ),
    "only the start": (
        lambda a, b: a.alias("a").join(b.alias("b"), F.expr("a.window.start = b.window.end")),
        "'window' is not compared",
    ),
    "other windows": (
        lambda a, b: a.join(b.groupBy(F.window("window", "20 seconds"), "key").count(), ["window", "key"]),
        "they are not the same. Use equal windows, or join by their ends",
    ),
    "sessions": (
        lambda a, b: a.join(b.groupBy(F.session_window("window", "1 second").alias("window")).count(), "window"),
        "one side has session windows",
    ),
    "windows over sessions": (
        lambda a, b: a.join(
            b.groupBy(F.session_window("window", "1 second"))
            .count()
            .groupBy(F.window("session_window", "10 seconds"))
            .count(),
            "window",
        ),
        "final later than other windows",
    ),
    "rows made again": (
        lambda a, b: a.join(b.mapInPandas(lambda each: each, b.schema), "window"),
        "have rebuilt the rows on the right",
    ),
    "update": (
        lambda a, b: a.join(b, ["window", "key"]).writeStream.outputMode("update").format("noop").start(),
        "the rows of a join are final",
    ),
    "late rows": (lambda a, b: a.join(b, "window").lateRows, "Take lateRows of those"),
    "a stream": (
        lambda a, b: a.join(sj.stream(b.sparkSession.readStream.format("rate").load()), "window"),
        "the other side is a stream",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_never_final_together_is_refused(spark: SparkSession, tmp_path: Path, case: str) -> None:
    streams = [sj.stream(spark.readStream.schema(SCHEMA).json(str(tmp_path))) for _ in range(2)]
    refused, message = REFUSED[case]
    with pytest.raises(sj.AnalysisError, match=message):
        refused(*(summed(timed(each), name) for each, name in zip(streams, "xy", strict=True)))


@pytest.mark.long
def test_into_files_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feed(tmp_path / "left"), Feed(tmp_path / "right")
    batches = [([1, 2], [3]), ([14], [12, 15]), ([31], [33])]
    for times in batches:
        for feed, each in zip(feeds, times, strict=True):
            feed.add(*rows(each, k="a", v=1))
        sides = [
            summed(timed(sj.stream(feed.read(spark)).withColumnsRenamed({"k": "key", "v": "value"})), name)
            for feed, name in zip(feeds, "xy", strict=True)
        ]
        joined = sides[0].join(sides[1], ["window", "key"], "outer")
        writer = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "home"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    written = sj.read_files(str(tmp_path / "out")).collect()
    assert sorted((row.window.end.second, row.x, row.y) for row in written) == [(30, 2, 1), (40, 1, 2)]
