"""Aggregates without a window, or with windows that never close, equal a naive reference, restarted or not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from sparkjet.options import Options
from sparkjet.testing import CollectingSink, StreamDriver
from tests.laws import RANDOM_RUNS, law
from tests.lines import needs_python_aggregates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.grouped import RollingStream

SCHEMA = "key string, value long, ts timestamp"
SIZE, STEP = 8, 3
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Event = tuple[str | None, int, int | None]
"""Key, value, and event time in microseconds."""
Groups = dict[tuple[Any, ...], list[Event]]


def row(event: Event) -> tuple[Any, ...]:
    key, value, time = event
    return key, value, None if time is None else _EPOCH + timedelta(microseconds=time)


def spread() -> Any:
    """The greatest minus the least value, in Python."""
    return sj.python_aggregate(
        "value",
        accumulatorType="low long, high long",
        returnType="long",
        create=lambda: (None, None),
        accumulate=lambda acc, v: (v if acc[0] is None else min(acc[0], v), v if acc[1] is None else max(acc[1], v)),
        combine=lambda a, b: b if a[0] is None else a if b[0] is None else (min(a[0], b[0]), max(a[1], b[1])),
        finish=lambda acc: acc[1] - acc[0],
    ).alias("spread")


def aggregates() -> list[Any]:
    """Some that can be deducted, some that cannot, and one whose accumulator is an array."""
    return [
        F.sum("value").alias("total"),
        F.count("*").alias("n"),
        F.min("value").alias("least"),
        F.count_distinct("value").alias("different"),
        (F.max("value") - F.min("value")).alias("spread"),
    ]


def computed(events: Sequence[Event]) -> tuple[Any, ...]:
    """The aggregates of some events."""
    values = [value for _, value, _ in events]
    return sum(values), len(values), min(values), len(set(values)), max(values) - min(values)


def by_key(event: Event) -> list[tuple[Any, ...]]:
    return [(event[0],)]


def of_all(event: Event) -> list[tuple[Any, ...]]:
    del event
    return [()]


def by_window(event: Event) -> list[tuple[Any, ...]]:
    """Start of each window, and the key; none without an event time."""
    key, _, time = event
    first = 0 if time is None else time - time % STEP
    starts = [] if time is None else range(first, time - SIZE, -STEP)
    return [(start, key) for start in starts]


def plain(found: Any) -> tuple[Any, ...]:
    """A result as the reference has it."""
    return tuple(round(each.start.timestamp() * 1_000_000) if hasattr(each, "start") else each for each in found)


def keyed(events: sj.Stream) -> RollingStream:
    return events.where("value <> 0").groupBy("key").agg(*aggregates())


def overall(events: sj.Stream) -> RollingStream:
    return events.where("value <> 0").agg(*aggregates())


def windowed(events: sj.Stream) -> Any:
    window = F.window("ts", f"{SIZE} microseconds", f"{STEP} microseconds")
    return events.where("value <> 0").groupBy(window, "key").agg(*aggregates())


def unmarked(events: sj.Stream) -> list[Any]:
    return [keyed(events), overall(events), windowed(events)]


def marked(events: sj.Stream) -> list[Any]:
    return unmarked(events.withWatermark("ts", 0))


GROUPS = [by_key, of_all, by_window]
QUERIES: dict[str, tuple[str, Callable[[sj.Stream], list[Any]]]] = {
    "update": ("update", unmarked),
    "complete": ("complete", marked),
}
FIXED: list[list[Event]] = [
    [("x", 1, 5), ("y", -2, None), (None, 3, 9), ("x", 0, 5), ("z", 0, 40)],
    [("x", 4, 2), ("x", 4, 31), (None, 1, None)],
    [],
    [("y", 0, 3)],
    [("y", 5, 4), ("new", 7, -2), ("x", 1, 2)],
]
"""Nulls as key and as time, rows that are filtered out, empty epochs, an event that is late by the watermark."""


def expected(epochs: Sequence[Sequence[Event]], group: Callable[[Event], Any], mode: str) -> list[Counter[Any]]:
    """The rows of each epoch."""
    groups: Groups = defaultdict(list)
    output = []
    for epoch in epochs:
        counted = [event for event in epoch if event[1]]
        for event in counted:
            for key in group(event):
                groups[key].append(event)
        changed = {key for event in counted for key in group(event)}
        sent = changed if mode == "update" else groups.keys() if changed else ()
        output.append(Counter((*key, *computed(groups[key])) for key in sent))
    return output


def check(spark: SparkSession, name: str, epochs: list[list[Event]], modes: Sequence[str]) -> None:
    mode, query = QUERIES[name]
    for way in modes:
        fed = [[event for epoch in epochs for event in epoch]] if way == "one batch" else epochs
        driver = StreamDriver(spark, query, SCHEMA, outputMode=mode, overlapEpochs=way == "many")
        for epoch in fed:
            driver.process(map(row, epoch))
            if way == "restarts":
                driver.restart()
        driver.close_windows()
        driver.engine.join()
        for sink, group in zip(driver.sinks, GROUPS, strict=True):
            assert isinstance(sink, CollectingSink)
            found = [Counter(map(plain, sink.committed.get(number, []))) for number in range(1, len(fed) + 2)]
            assert found == [*expected(fed, group, mode), Counter()]
        assert driver.late_counts == {}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        # In CI, `test_a_table_that_is_upserted…` starts a query in update mode again, and `api/test_like_spark.py` some
        # in complete mode, windows among them.
        pytest.param("update", "restarts", marks=pytest.mark.long),
        pytest.param("complete", "one batch", marks=pytest.mark.long),
    ],
)
def test_results_are_those_of_all_rows_so_far(spark: SparkSession, name: str, way: str) -> None:
    check(spark, name, [FIXED[0], FIXED[-1]], [way])


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("times", RANDOM_RUNS)
def test_results_are_those_of_all_rows_so_far_over_random_runs(spark: SparkSession, name: str, times: int) -> None:
    keys, times_ = st.sampled_from(["x", "y", None]), st.one_of(st.none(), st.integers(-20, 40))
    events = st.lists(st.tuples(keys, st.integers(-3, 3), times_), max_size=8)

    @example(epochs=FIXED)
    @law(times)
    @given(epochs=st.lists(events, min_size=2, max_size=5))
    def holds(epochs: list[list[Event]]) -> None:
        check(spark, name, epochs, ("one batch", "many", "restarts"))

    holds()


def by_two(events: sj.Stream) -> sj.Stream:
    """Each row comes with a copy of it that is only there for the progress of its substream."""
    return events.withWatermark("ts", 0, by="key")


def filtered(events: sj.Stream) -> list[Any]:
    timed = events.withWatermark("ts", 0)
    return [keyed(timed), overall(timed)]


ALONE: dict[tuple[str, str], Callable[[sj.Stream], list[Any]]] = {
    ("filtered", "complete"): marked,
    ("substreams", "complete"): lambda events: unmarked(by_two(events)),
    # With a watermark, windows would be final in this mode.
    ("filtered", "update"): filtered,
}


@pytest.mark.parametrize(
    ("name", "mode"),
    # Of filtered rows, the fuzzer's rolling aggregates behind filters show it in CI.
    [pytest.param(*each, marks=pytest.mark.long if each[0] == "filtered" else ()) for each in ALONE],
)
def test_what_only_says_how_far_a_stream_has_come_is_in_no_group(spark: SparkSession, name: str, mode: str) -> None:
    driver = StreamDriver(spark, ALONE[name, mode], SCHEMA, outputMode=mode)
    epochs = [FIXED[0], FIXED[1]]
    for epoch in epochs:
        driver.process(map(row, epoch))
    for sink, group in zip(driver.sinks, GROUPS, strict=False):
        assert isinstance(sink, CollectingSink)
        assert [Counter(map(plain, sink.committed[number])) for number in (1, 2)] == expected(epochs, group, mode)


# In CI, `api/test_grouped_results.py` and the fuzzer compare with Spark's batch.
@pytest.mark.long
def test_at_last_results_are_sparks_of_a_batch(spark: SparkSession) -> None:
    """Values whose accumulators are lists, maps and Python's among them; keys of several columns and types."""

    def query(events: Any) -> Any:
        keys = F.upper("key").alias("k"), (F.col("value") > 0).alias("positive")
        listed = F.sort_array(F.collect_list("value")).alias("all")
        return events.groupBy(*keys).agg(F.avg("value").alias("mean"), F.stddev("value").alias("off"), listed)

    driver = StreamDriver(spark, query, SCHEMA, outputMode="complete")
    for epoch in RANKED:
        driver.process(map(row, epoch))
    batch: DataFrame = query(spark.createDataFrame([row(event) for epoch in RANKED for event in epoch], SCHEMA))
    (sink,) = driver.sinks
    assert isinstance(sink, CollectingSink)
    assert sorted(map(str, sink.committed[2])) == sorted(map(str, batch.collect()))


RANKED: list[list[Event]] = [
    [*(("a", n % 5 - 2, n) for n in range(9)), ("b", -1, 2)],
    [("A", 7, 1), *[("b", 1, None)] * 9, (None, 2, None), ("c", 1, 2)],
]


def test_results_may_be_sorted_and_limited(spark: SparkSession) -> None:
    def ranked(events: Any) -> Any:
        return events.groupBy("key").count().orderBy(F.desc("count"), "key").limit(3).withColumn("one", F.lit(1))

    driver = StreamDriver(spark, ranked, SCHEMA, outputMode="complete")
    for epoch in RANKED:
        driver.process(map(row, epoch))
    (top,) = driver.sinks
    assert isinstance(top, CollectingSink)
    assert [tuple(each) for each in top.committed[1]] == [("a", 9, 1), ("b", 1, 1)]
    assert [tuple(each) for each in top.committed[2]] == [("b", 10, 1), ("a", 9, 1), (None, 1, 1)]


@needs_python_aggregates
def test_python_aggregates_and_first_rows_go_on_from_what_is_stored(spark: SparkSession) -> None:
    def query(events: sj.Stream) -> Any:
        return events.withWatermark("ts", 0).groupBy("key").agg(spread(), F.last("value").alias("last"))

    driver = StreamDriver(spark, query, SCHEMA, outputMode="update")
    driver.process(map(row, [("x", 3, 9), ("x", 1, None)]))
    driver.restart()
    driver.process(map(row, [("x", -4, 8), ("y", 2, None)]))
    assert sorted(map(tuple, driver.results())) == [("x", 2, 3), ("x", 7, 3), ("y", 0, 2)]


def test_several_outputs_of_one_aggregation_share_its_state(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"key": "x", "value": 1}\n{"key": "y", "value": 2}\n')
    source = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")
    events = sj.stream(source)
    counts = events.groupBy("key").sum("value")
    writers = [
        counts.writeStream.format("memory").queryName("shared_changes").outputMode("update"),
        counts.orderBy("key").writeStream.format("memory").queryName("shared_all").outputMode("complete"),
        events.where("value > 1").writeStream.format("memory").queryName("shared_rows"),
    ]
    query = sj.start(*[writer.trigger(availableNow=True) for writer in writers])
    query.awaitTermination()
    assert query.lastProgress is not None
    assert query.lastProgress["snapshot"] == {"deltas": 1, "entries": 2, "partitions": 2}
    assert sorted(map(tuple, spark.table("shared_changes").collect())) == [("x", 1), ("y", 2)]
    assert [tuple(each) for each in spark.table("shared_all").collect()] == [("x", 1), ("y", 2)]
    assert spark.table("shared_rows").count() == 1


def test_the_memory_sink_shows_the_results_of_the_last_epoch_even_if_there_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")
    once = sj.stream(source).groupBy("key").count().where("count = 1").orderBy(F.desc("key"))
    writer = once.writeStream.format("memory").queryName("once_only").outputMode("complete")
    query = writer.trigger(processingTime="0 seconds").start()
    for number, (keys, shown) in enumerate([("abc", "cba"), ("ac", "b"), ("b", "")]):
        lines = "\n".join(f'{{"key": "{key}"}}' for key in keys)
        (tmp_path / f"{number}").write_text(lines)
        (tmp_path / f"{number}").rename(tmp_path / "in" / f"{number}.json")
        query.processAllAvailable()
        assert "".join(each.key for each in spark.table("once_only").collect()) == shown
    query.stop()


def test_results_of_a_batch_are_those_of_all_rows(spark: SparkSession) -> None:
    events = sj.stream(spark.createDataFrame([("x", 1, None), ("x", 2, None), ("y", 5, None)], SCHEMA))
    sums = events.groupBy("key").agg(F.sum("value").alias("total"))
    assert [tuple(each) for each in sums.orderBy(F.desc("total")).toDF().collect()] == [("y", 5), ("x", 3)]
    assert events.agg({"value": "max"}).toDF().collect()[0][0] == 5
    # Nothing says which row came first.
    assert tuple(events.agg(F.first("value"), F.last("value")).toDF().collect()[0]) == (1, 5)


@pytest.mark.parametrize(
    ("schema", "first", "second"),
    [
        # Spark's hash of a null is that of nothing: these have the same.
        pytest.param("a string, b string", [("x", None), (None, "x")], [(None, "x")], marks=pytest.mark.long),
        pytest.param("a array<int>", [(None,), ([None],), ([],)], [([None],)], marks=pytest.mark.long),
        # What a collation calls equal has other bytes, so no key has its own hash.
        ("a string collate UTF8_LCASE", [("x",), ("y",)], [("X",)]),
    ],
    ids=["nulls", "arrays", "collated"],
)
def test_keys_that_share_a_hash_are_sent_when_they_have_changed(
    spark: SparkSession, schema: str, first: list[Any], second: list[Any]
) -> None:
    keys = [field.split()[0] for field in schema.split(", ")]
    driver = StreamDriver(spark, lambda s: s.groupBy(*keys).count(), schema, outputMode="update")
    driver.process(first)
    driver.process(second)
    assert [row["count"] for row in driver.results()] == [1] * len(first) + [2]


@pytest.mark.crash
def test_an_epoch_that_crashed_sends_the_same_keys_again_and_no_others(spark: SparkSession) -> None:
    driver = StreamDriver(spark, keyed, SCHEMA, outputMode="update")
    driver.process(map(row, [("x", 1, None), ("y", 2, None)]))
    for phase in (EpochPhase.ADVANCE, EpochPhase.PREPARE):
        with driver.crash(at=phase):
            driver.process(map(row, [("x", 1, None)]))
        driver.restart()
    driver.process(map(row, [("x", 1, None)]))
    driver.restart()
    driver.process(map(row, [("z", 4, None)]))
    assert [tuple(each)[:2] for each in driver.results()][2:] == [("x", 4), ("z", 4)]


NEAR = (EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMITTING)


@pytest.mark.crash
@pytest.mark.interpreted
@pytest.mark.parametrize("phases", [NEAR, pytest.param(tuple(EpochPhase), marks=pytest.mark.long)], ids=["near", "all"])
def test_a_table_that_is_upserted_equals_the_results_whatever_phase_crashes(
    spark: SparkSession, dsn: str, phases: tuple[EpochPhase, ...]
) -> None:
    """Before results are prepared, the table knows nothing of an epoch."""
    from sparkjet.connectors.postgres.settings import PostgresSettings
    from sparkjet.connectors.postgres.sink import PostgresSink

    given = Options({"dsn": dsn, "dbtable": "live", "mode": "upsert", "keyColumns": "key"})

    def query(events: sj.Stream) -> Any:
        return keyed(events.where("key is not null")).select("key", "total", "n")

    sink = PostgresSink(PostgresSettings.of(given))
    driver = StreamDriver(spark, query, SCHEMA, outputMode="update", sinks=[sink])
    sent: list[Event] = []
    for number, phase in enumerate(phases):
        rows: list[Event] = [("x", number + 1, None), (f"k{number % 3}", 1, None), (f"only{number}", 2, None)]
        sent += rows
        with driver.crash(at=phase):
            driver.process(map(row, rows))
        driver.restart()
        driver.process()
        (whole,) = expected([sent], by_key, "complete")
        with psycopg.connect(dsn) as connection:
            found = connection.execute("SELECT key, total, n FROM live").fetchall()
        assert Counter(found) == Counter({each[:3]: 1 for each in whole}), phase


def test_state_belongs_to_the_query_that_saved_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"key": "x", "value": 1, "ts": "2026-01-01 12:00:00"}\n')
    events = sj.stream(spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")).withWatermark("ts", "1 second")

    def run(result: Any, mode: str, home: str) -> None:
        writer = result.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        writer.option("checkpointLocation", tmp_path / home).start().awaitTermination()

    run(keyed(events), "update", "keys")
    run(keyed(events), "complete", "keys")
    minutes = events.groupBy(F.window("ts", "1 minute")).count()
    run(minutes, "append", "windows")
    with pytest.raises(sj.RecoveryError, match="results: none → rolling: refused"):
        run(minutes, "complete", "windows")
    run(minutes, "complete", "rolling")
    with pytest.raises(sj.RecoveryError, match=r"stage0: window: .* refused"):
        run(events.groupBy(F.window("ts", "2 minutes")).count(), "complete", "rolling")
