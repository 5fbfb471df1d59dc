"""Deduplication as a step of a query: by the query's watermark, restarted, before windows, and like Spark's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.catalyst.columns import TIME
from sparkjet.testing import CollectingSink, StreamDriver
from tests.engine.run import Event, EventDriver
from tests.parameters import mostly_crash, mostly_long
from tests.stateful.deduplication_run import Kind, naive
from tests.windows import model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.stream import Stream

SCHEMA = "id string, ts timestamp, n long"


class OwnPolicy:
    """Settings of a policy that says nothing of a lag."""

    def create(self) -> sj.WatermarkPolicy:
        """A policy that is never asked."""
        raise NotImplementedError


def marked(events: Stream) -> Stream:
    """With a lag of 10 microseconds, and a watermark that stops at each of them."""
    return events.withWatermark("ts", 10, by="substream", substreams=["a", "b"], throttle=sj.no_throttling())


QUERIES: dict[str, tuple[Callable[[Stream], Stream], Kind]] = {
    "by time": (lambda s: s.dropDuplicates(["key", "ts"]), Kind(0, by_time=True)),
    "within": (lambda s: s.dropDuplicatesWithinWatermark(["key"]), Kind(10)),
    "forever": (lambda s: s.drop_duplicates(["key"]), Kind(None)),
}
EPOCHS = [
    [Event("a", "x", 0, 1), Event("a", "x", 3, 2), Event("b", "y", 5, 3), Event("a", None, 8, 4)],
    # Substream b lags behind: what it has is not late, however far the other one is.
    [Event("a", "x", 40, 5), Event("a", "y", 60, 6), Event("b", "z", 6, 7)],
    [Event("b", "x", 5, 8), Event("b", "x", 9, 9), Event("b", "z", 6, 10), Event("b", None, 7, 11)],
    [Event("b", "y", 44, 12), Event("b", None, 30, 13)],
    [Event("a", "y", 33, 14), Event("b", "y", 34, 15), Event("a", "x", 40, 16), Event("a", "z", 35, 17)],
]


@pytest.mark.parametrize(
    ("name", "mode"),
    mostly_crash(
        product(QUERIES, ["restarts", "overlapping"]),
        quick=(),
        # Restarts are in `stateful/test_deduplication.py`.
        crash={("by time", "overlapping")},
    ),
)
def test_first_rows_equal_the_naive_ones(spark: SparkSession, tmp_path: Path, name: str, mode: str) -> None:
    query, kind = QUERIES[name]
    run = EventDriver(spark, tmp_path, lambda s: query(marked(s)), overlap=mode == "overlapping")
    batches, expected_late = [], 0
    for epoch in EPOCHS:
        run.feed(epoch)
        batches.append(model.Batch([model.Event(e.key, e.time, e.value) for e in epoch], run.reached))
        if mode == "restarts":
            run.restart()
    assert [batch.watermark for batch in batches] == [-5, -4, -1, 34, 34]
    expected, expected_late = naive(batches, kind)
    run.close_windows()
    run.engine.join()
    (sink,) = run.sinks
    assert isinstance(sink, CollectingSink)
    for number, rows in enumerate(expected, 1):
        found = [(row.key, _microseconds(row.ts), row.value) for row in sink.committed.get(number, [])]
        assert sorted((row[:2] for row in found), key=repr) == sorted((row[:2] for row in rows), key=repr), number
        allowed = {(key, time): values for key, time, values in rows}
        assert all(value in allowed[key, time] for key, time, value in found), number
    assert sum(run.late_counts.values()) == expected_late
    assert (expected_late > 0) == (kind.keep is not None)
    (stage,) = run.engine.state.stages.values()
    assert (stage.operator.segments == []) == (kind.keep is not None)


def _microseconds(time: Any) -> int:
    return round(time.timestamp() * 1_000_000)


@pytest.mark.parametrize("columns", mostly_long({"['id']": ["id"], "None": None}, ["None"]))
def test_a_batch_is_deduplicated_like_sparks(spark: SparkSession, columns: list[str] | None) -> None:
    rows = spark.sql(
        "SELECT if(id % 7 = 0, null, concat('k', id % 5)) AS id, timestamp_seconds(id % 11) AS ts, id % 3 AS n,"
        " if(id % 2 = 0, 0.0D, -0.0D) AS zero FROM range(60)"
    )
    named = columns if columns is not None else rows.columns
    like = sorted(map(tuple, rows.dropDuplicates(columns).select(named).collect()), key=repr)
    for stream in (sj.stream(rows), sj.stream(rows).withWatermark("ts", "1 hour")):
        found = stream.dropDuplicates(columns).toDF()
        assert found.columns == rows.columns
        assert sorted(map(tuple, found.select(named).collect()), key=repr) == like
    assert sj.stream(rows).distinct().toDF().count() == rows.distinct().count()


# In CI, `ported/test_installed_state.py` and the fuzzer drop duplicates without a watermark.
@pytest.mark.long
def test_of_a_stream_without_a_watermark_every_row_comes_once(spark: SparkSession) -> None:
    """Rows without a time as well, and over a restart."""
    rows = [("a", None, 1), ("a", None, 1), (None, None, 1), ("b", "2026-01-01 00:00:00", 1)]
    driver = StreamDriver(spark, lambda s: s.where("n < 5").distinct().where("id IS NOT NULL"), SCHEMA)
    driver.process(rows)
    driver.restart()
    driver.process([*rows, ("a", None, 2), ("a", None, 9)])
    driver.process([])
    assert sorted((row.id, row.n) for row in driver.results()) == [("a", 1), ("a", 2), ("b", 1)]
    assert driver.late_counts == {}
    assert driver.watermark is None


def test_where_a_key_is_kept_forever_rows_without_a_time_are_rows_as_in_sparks_batch(spark: SparkSession) -> None:
    """Their time is no part of the key, and nothing is forgotten by it; windows behind count them as timeless."""

    def query(rows: Stream) -> Any:
        first = rows.withWatermark("ts", "1 second").dropDuplicates(["id"])
        return [first, first.groupBy(F.window("ts", "1 minute")).agg(F.sum("n").alias("n"))]

    driver = StreamDriver(spark, query, SCHEMA)
    at = "2026-01-01 00:00:{:02}".format
    # Of one epoch they are older than all others.
    driver.process([("b", at(1), 1), ("a", at(1), 2), ("a", None, 3), (None, None, 4)])
    driver.process([("a", at(2), 5), ("c", None, 6), ("c", at(0), 7), (None, at(3), 8)])
    driver.close_windows()
    assert sorted((row.id or "", row.n) for row in driver.results()) == [("", 4), ("a", 3), ("b", 1), ("c", 6)]
    assert [row.n for row in driver.results(1)] == [1]
    timeless = {name: stage.null_timestamps.total() for name, stage in driver.engine.state.stages.items()}
    assert timeless == {"stage0": 0, "stage1": 3}


@pytest.mark.crash
def test_windows_over_what_is_left_count_each_once_and_lose_nothing(spark: SparkSession) -> None:
    """An idle substream does not hold them, and a lagging one does."""

    def query(rows: Stream) -> Any:
        events = rows.withWatermark("ts", "2 seconds", by="n", substreams=["0", "1"], idleTimeout="1 minute")
        first = events.dropDuplicates(["id", "ts"]).where("id <> 'z'")
        return [first.groupBy(F.window("ts", "10 seconds")).count(), first.select("id"), first.lateRows]

    driver = StreamDriver(spark, query, SCHEMA)
    at = "2026-01-01 00:00:{:02}".format
    driver.process([("a", at(1), 0), ("a", at(1), 1), ("b", at(2), 0), ("z", at(2), 0), ("a", at(30), 0)])
    driver.process([("b", at(2), 1), ("c", at(3), 1), ("c", at(3), 1)])
    assert driver.results() == []
    driver.restart()
    driver.process([("d", at(31), 1), ("a", at(30), 1)])
    # Late for the deduplication: the window is not asked.
    driver.process([("e", at(4), 0), (None, None, 0)])
    assert [row["count"] for row in driver.results()] == [3]
    assert sorted(row.id for row in driver.results(1)) == ["a", "a", "b", "c", "d"]
    assert sorted((row.id or "", row._reason) for row in driver.late_rows()) == [("", "null_timestamp"), ("e", "late")]
    assert driver.late_counts == {"0": 1}
    driver.process([("f", at(55), 0)])
    driver.advance("2 minutes")
    assert [row["count"] for row in driver.results()] == [3, 2]
    driver.close_windows()
    assert [row["count"] for row in driver.results()] == [3, 2, 1]
    assert all(stage.operator.segments == [] for stage in driver.engine.state.stages.values())


def test_rows_that_no_watermark_forgets_may_be_late_for_later_windows(spark: SparkSession) -> None:
    def query(rows: Stream) -> Any:
        windows = rows.withWatermark("ts", 0).dropDuplicates(["id"]).groupBy(F.window("ts", "10 seconds")).count()
        return [windows, windows.lateRows]

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([("a", "2026-01-01 00:00:01", 1), ("b", "2026-01-01 00:00:10", 1)])
    driver.process([("a", "2026-01-01 00:00:01", 1), ("c", "2026-01-01 00:00:02", 1)])
    assert [row["count"] for row in driver.results()] == [1]
    assert [row.id for row in driver.late_rows()] == ["c"]


def test_the_columns_stay_what_they_were(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'a' AS Id, timestamp_seconds(1) AS ts, struct(1 AS `x.y`) AS s, 1 AS `a.b`")
    stream = sj.stream(rows).withWatermark("ts", 0)
    left = stream.withColumnRenamed("ts", "time").dropDuplicates(["id", "time"])
    assert left.columns == ["Id", "time", "s", "a.b"]
    assert _keep(left) == 0
    found = left.select(rows["Id"], "s.`x.y`", "`a.b`").toDF().collect()
    assert [tuple(row) for row in found] == [("a", 1, 1)]
    counted = left.groupBy(F.window("time", "1 second")).count().toDF().collect()
    assert [row["count"] for row in counted] == [1]
    assert TIME not in left.columns


def _keep(stream: Stream) -> int | None:
    stage = stream._written.stage
    assert stage is not None
    settings: Any = stage.operator(1).settings
    keep: int | None = settings.keep
    return keep


@pytest.mark.parametrize(
    ("policy", "keep"),
    [
        ("3 seconds", 3_000_000),
        (sj.limiting_lag_and_delay(5, 99), 5),
        (sj.limiting_lag_and_lull(5, 9), 5),
        (sj.limiting_real_time_lag(7), 7),
        (sj.limiting_timestamp_and_wall_clock_lag(5, 9), 9),
    ],
    ids=str,
)
def test_a_key_is_remembered_by_the_delay_of_the_policy(rows: DataFrame, policy: Any, keep: int) -> None:
    events = sj.stream(rows).withWatermark("ts", policy)
    assert _keep(events.dropDuplicatesWithinWatermark(["id"])) == keep
    longer = sj.stream(rows).withWatermark("ts", "1 hour")
    assert _keep(events.union(longer).dropDuplicatesWithinWatermark()) == 3_600_000_000
    assert _keep(events.dropDuplicates(["id"])) is None
    assert _keep(events.distinct()) == 0


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """A batch, which is enough to describe queries."""
    return spark.createDataFrame([], f"{SCHEMA}, m map<string, long>").drop("m")


WRONG: Sequence[tuple[Callable[[Stream], object], str]] = [
    (lambda s: s.dropDuplicatesWithinWatermark(["id"]), "dropDuplicatesWithinWatermark: it needs a watermark"),
    (lambda s: s.dropDuplicates("id"), r"subset='id' must be a list of names of columns, e.g. \['id'\]"),
    (lambda s: s.dropDuplicates([F.col("id")]), "must be a list of names"),
    (lambda s: s.dropDuplicates([]), "names no column"),
    (lambda s: s.dropDuplicates(["idd"]), "dropDuplicates: 'idd' is not a column; did you mean \"id\""),
    (lambda s: s.withColumn("m", F.create_map("id", "n")).distinct(), "distinct: 'm' is of type map<string,bigint>"),
    (lambda s: s.dropDuplicates().withWatermark("ts", 0), "Call it before that step"),
    (
        lambda s: s.withWatermark("ts", OwnPolicy()).dropDuplicatesWithinWatermark(["id"]),
        "Give its settings an attribute lag",
    ),
    (
        lambda s: s.withWatermark("ts", 0).withColumn("ts", F.lit(None).cast("timestamp")).dropDuplicates(["ts"]),
        "dropDuplicates: 'ts' was replaced after withWatermark",
    ),
    (
        lambda s: (
            s.dropDuplicates(["id"])
            .writeStream.format("noop")
            .outputMode("update")
            .option("earlyResultsPeriod", "1 second")
            .start()
        ),
        "earlyResultsPeriod: without windows",
    ),
    (lambda s: s.lateRows, "lateRows: no row of a stream is late by itself"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[message[:20] for _, message in WRONG])
def test_what_is_wrong_is_refused(rows: DataFrame, wrong: Callable[[Any], object], message: str) -> None:
    with pytest.raises(sj.AnalysisError, match=message):
        wrong(sj.stream(rows))
