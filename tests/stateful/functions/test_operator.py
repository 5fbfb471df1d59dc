from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

from sparkjet.engine.phases import EpochPhase
from sparkjet.stateful.functions.operator import FunctionOperator
from sparkjet.testing import StreamDriver
from tests.parameters import mostly_crash

SCHEMA = "ts timestamp, feed string, k string, n long"


def at(second: int) -> str:
    return f"2026-01-01 00:{second // 60:02}:{second % 60:02}"


def totals(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """One row for each key, ten seconds of event time after its last row."""
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "total": [state.get[0]]})
        state.remove()
        return
    total, last = state.getOption or (0, 0)
    for frame in frames:
        total, last = total + int(frame["n"].sum()), max(last, int(frame["ts"].max().timestamp() * 1000))
    state.update((total, last))
    state.setTimeoutTimestamp(last + 10_000)


def in_event_time(rows: Any, condition: str = "true", **options: Any) -> Any:
    grouped = rows.withWatermark("ts", "1 second", **options).where(condition).groupBy("k")
    return grouped.applyInPandasWithState(
        totals, "k string, total long", "total long, last long", "append", "EventTimeTimeout"
    )


def operator_of(driver: StreamDriver) -> FunctionOperator:
    (stage,) = driver.engine.state.stages.values()
    assert isinstance(stage.operator, FunctionOperator)
    return stage.operator


EVENTS = [
    [(at(1), "x", "a", 1), (at(2), "x", "b", 2), (at(4), "x", "a", 4)],
    [(at(9), "x", "c", 8), (at(11), "x", "c", 16)],
    # Far behind the others, and not late: it is another substream.
    [(at(3), "y", "a", 32), (at(5), "y", "b", 64)],
    [(at(30), "x", "d", 128), (at(29), "y", "d", 256)],
    [(at(90), "x", "e", 512), (at(90), "y", "e", 1024)],
]
EXPECTED = [Row(k="a", total=37), Row(k="b", total=66), Row(k="c", total=24), Row(k="d", total=384)]


MODES = {"one batch", "restarts"}
"""Those of `make test-crash`, whose jobs with functions overlap their epochs too."""


@pytest.mark.parametrize("mode", mostly_crash(["one batch", "many", "restarts", "overlapping"], quick=(), crash=MODES))
def test_a_lagging_substream_loses_nothing(spark: SparkSession, mode: str) -> None:
    options: dict[str, Any] = {"overlapEpochs": True} if mode == "overlapping" else {}
    driver = StreamDriver(spark, lambda rows: in_event_time(rows, by="feed", substreams=["x", "y"]), SCHEMA, **options)
    for events in [[row for batch in EVENTS for row in batch]] if mode == "one batch" else EVENTS:
        driver.process(events)
        if mode == "restarts":
            driver.restart()
    assert sorted(driver.results()) == EXPECTED
    assert driver.late_counts == {}
    driver.close_windows()
    assert sorted(driver.results())[4:] == [Row(k="e", total=1536)]
    assert operator_of(driver).segments == []


@pytest.mark.long
@pytest.mark.parametrize("phase", [EpochPhase.ADVANCE, EpochPhase.PREPARE, EpochPhase.DECIDE])
def test_a_crash_neither_loses_nor_repeats_a_call(spark: SparkSession, phase: EpochPhase) -> None:
    driver = StreamDriver(spark, in_event_time, SCHEMA)
    driver.process([(at(1), "x", "a", 1)])
    with driver.crash(at=phase):
        driver.process([(at(2), "x", "a", 2), (at(40), "x", "b", 4)])
    driver.restart()
    driver.process([(at(80), "x", "c", 8)])
    assert sorted(driver.results()) == [Row(k="a", total=3), Row(k="b", total=4)]


@pytest.mark.crash
@pytest.mark.interpreted
def test_late_rows_are_dropped_where_timers_are_in_event_time(spark: SparkSession) -> None:
    """And those that a filter drops do not reach the function."""
    driver = StreamDriver(spark, lambda rows: in_event_time(rows, "n > 0"), SCHEMA)
    driver.process([(at(30), "x", "a", 1), (at(31), "x", "a", -5), (None, "x", "a", 100)])
    driver.process([(at(3), "x", "a", 200), (at(90), "x", "b", 0)])
    assert driver.results() == [Row(k="a", total=1)]
    assert driver.late_counts == {"all": 1}


def counted(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = (state.getOption or (0,))[0] + sum(len(frame) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "total": [total]})


def test_without_timers_in_event_time_functions_get_rows_without_one(spark: SparkSession) -> None:
    """As they get late ones, and as in Spark."""

    def query(rows: Any) -> Any:
        grouped = rows.withWatermark("ts", "1 second").groupBy("k")
        return grouped.applyInPandasWithState(counted, "k string, total long", "total long", "update", "NoTimeout")

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(30), "x", "a", 1), (None, "x", "a", 1), (None, "x", "b", 1)])
    driver.process([(at(3), "x", "a", 1), (None, "x", "b", 1)])
    assert sorted(driver.results()) == [Row(k=k, total=n) for k, n in [("a", 2), ("a", 3), ("b", 1), ("b", 2)]]
    assert driver.late_counts == {}
    assert sum(operator.null_timestamps.total() for operator in driver.engine.state.stages.values()) == 0


class Clocked(StatefulProcessor):
    """Counts for three seconds after the first row, in processing time; a list of the last two seconds beside it."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.recent = handle.getListState("recent", "n long", 2_000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if not self.count.exists():
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_000)
        for row in rows:
            self.count.update(((self.count.get() or (0,))[0] + 1,))
            self.recent.appendValue((row.n,))
        yield Row(k=key[0], seen=f"recent {[n for (n,) in self.recent.get()]}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(k=key[0], seen=f"count {self.count.get()[0]}")
        self.count.clear()


def clocked(rows: Any) -> Any:
    return rows.groupBy("k").transformWithState(Clocked(), "k string, seen string", "append", "ProcessingTime")


def test_timers_and_ttl_in_processing_time(spark: SparkSession) -> None:
    driver = StreamDriver(spark, clocked, SCHEMA)
    seen: list[list[str]] = []

    def step(rows: Any, duration: str | None = None) -> list[str]:
        driver.process(rows) if duration is None else driver.advance(duration)
        new = driver.results()[sum(map(len, seen)) :]
        seen.append([f"{row.k} {row.seen}" for row in new])
        return sorted(seen[-1])

    # Without a watermark: a row without a time is as good as any.
    assert step([(at(1), "x", "a", 1), (None, "x", "b", 2)]) == ["a recent [1]", "b recent [2]"]
    assert step((), "1500 milliseconds") == []
    assert step([(at(1), "x", "a", 3)]) == ["a recent [1, 3]"]
    driver.restart()
    assert step((), "1 second") == []
    assert step([(at(1), "x", "a", 4)]) == ["a recent [3, 4]"]
    assert step((), "1 second") == ["a count 3", "b count 1"]
    # What is left are lists whose time comes while nothing else happens.
    assert step((), "2 seconds") == []
    assert operator_of(driver).segments == []


class Reminding(StatefulProcessor):
    """Returns each number at the time of its row: a key has several timers."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.numbers = handle.getMapState("numbers", "at long", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.numbers.updateValue((int(row.ts.timestamp() * 1000),), (row.n,))
            self.handle.registerTimer(int(row.ts.timestamp() * 1000))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        (n,) = self.numbers.getValue((expiredTimerInfo.getExpiryTimeInMs(),))
        self.numbers.removeKey((expiredTimerInfo.getExpiryTimeInMs(),))
        yield Row(n=n)


def test_at_the_end_of_the_input_all_timers_of_a_key_fire(spark: SparkSession) -> None:
    def query(rows: Any) -> Any:
        grouped = rows.withWatermark("ts", "1 hour").groupBy("k")
        return grouped.transformWithState(Reminding(), "n long", "append", "EventTime")

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "x", "a", 1), (at(50), "x", "a", 2), (at(70), "x", "a", 3), (at(60), "x", "b", 4)])
    driver.close_windows()
    assert sorted(row.n for row in driver.results()) == [1, 2, 3, 4]
    assert operator_of(driver).segments == []
    assert driver.watermark is not None
    assert driver.watermark.second == 10


def test_a_clock_that_is_set_back_keeps_state_and_timers(spark: SparkSession) -> None:
    driver = StreamDriver(spark, clocked, SCHEMA)
    driver.advance("100 seconds")
    driver.process([(at(1), "x", "a", 1)])
    driver.advance("1 second")
    driver.clock.advance(-60_000_000)
    driver.process([(at(1), "x", "a", 2), (at(1), "x", "b", 3)])
    driver.advance("70 seconds")
    assert sorted(row.seen for row in driver.results() if "count" in row.seen) == ["count 1", "count 2"]


def toggle(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Forgets what it knows at each second call."""
    known = state.getOption
    if known is None:
        state.update((int(next(frames)["n"].iloc[0]),))
    else:
        state.remove()
    yield pd.DataFrame({"k": [key[0]], "known": [known and known[0]]})


def toggled(rows: Any) -> Any:
    return rows.groupBy("k").applyInPandasWithState(toggle, "k string, known long", "n long", "update", "NoTimeout")


@pytest.mark.crash
def test_state_that_is_removed_leaves_nothing(spark: SparkSession) -> None:
    driver = StreamDriver(spark, toggled, SCHEMA)
    for number in range(4):
        driver.process([(at(1), "x", f"k{number}", number), (at(1), "x", "other", number)])
        driver.process([(at(1), "x", f"k{number}", 7), (at(1), "x", "other", number)])
        if number == 2:
            driver.restart()
    known = {row.k: row.known for row in driver.results() if row.known is not None}
    assert known == {**{f"k{number}": number for number in range(4)}, "other": 3}
    live = operator_of(driver)._store.live()
    assert live is None or live.count() == 0
    assert sum(segment.statistics.rows for segment in operator_of(driver).segments) <= 8 * 2


@pytest.mark.parametrize(
    ("columns", "groups"),
    [
        (
            lambda: [
                F.when(F.col("n") == 1, F.col("k")).alias("null"),
                F.when(F.col("n") > 1, F.lit(float("nan"))).otherwise(F.lit(-0.0)).alias("nan"),
                F.struct(F.col("n") > 1, F.array(F.lower("feed"))).alias("nested"),
            ],
            [["a"], ["b", "c"]],
        ),
        # In CI, keys that a collation holds equal are those of rolling aggregates and of sessions.
        pytest.param(lambda: [F.collate("feed", "UTF8_LCASE").alias("by")], [["a", "b", "c"]], marks=pytest.mark.long),
    ],
    ids=["null, nan, nested", "collated"],
)
def test_keys_are_those_of_spark(
    spark: SparkSession, columns: Callable[[], list[Column]], groups: list[list[str]]
) -> None:
    def names(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        found = sorted(name for frame in frames for name in frame["k"])
        state.update(((state.getOption or (0,))[0] + len(found),))
        yield pd.DataFrame({"names": [found], "total": [state.get[0]]})

    def query(rows: Any) -> Any:
        grouped = rows.groupBy(*columns())
        return grouped.applyInPandasWithState(names, "names array<string>, total int", "n int", "update", "NoTimeout")

    driver = StreamDriver(spark, query, SCHEMA)
    for number in (1, 2):
        driver.process([(at(1), "x", "a", 1), (at(1), "X", "b", 2), (at(1), "x", "c", 3)])
        found = driver.results()[-len(groups) :]
        assert sorted(row.names for row in found) == groups
        assert all(row.total == number * len(row.names) for row in found)


def test_windows_may_follow(spark: SparkSession) -> None:
    class Latest(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.last = handle.getValueState("last", "ts timestamp")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            for frame in rows:
                self.last.update((frame["ts"].max(),))
                self.handle.registerTimer(int(frame["ts"].max().timestamp() * 1000))
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"k": [key[0]], "at": [self.last.get()[0]]})

    def query(rows: Any) -> Any:
        stream = rows.withWatermark("ts", "1 second").groupBy("k")
        latest = stream.transformWithStateInPandas(
            Latest(), "k string, at timestamp", "append", "EventTime", eventTimeColumnName="at"
        )
        return latest.where("k != 'z'").groupBy(F.window("at", "10 seconds")).count().select("window.start", "count")

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "x", "a", 1), (at(2), "x", "b", 1), (at(3), "x", "z", 1)])
    driver.process([(at(12), "x", "a", 1), (at(40), "x", "c", 1)])
    assert [(f"{row.start:%M:%S}", row["count"]) for row in driver.results()] == [("00:00", 2), ("00:10", 1)]


# In CI, frames with an initial state are in `tests/differential`.
@pytest.mark.parametrize("pandas", [pytest.param(True, marks=pytest.mark.long), False], ids=["pandas", "rows"])
def test_initial_state_comes_once(spark: SparkSession, pandas: bool) -> None:
    class Adding(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "n long")

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            self.add(int(initialState["start"].sum()) if pandas else initialState.start)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            for each in rows:
                self.add(int(each["n"].sum()) if pandas else each.n)
            total = self.total.get()[0]
            yield pd.DataFrame({"k": [key[0]], "total": [total]}) if pandas else Row(k=key[0], total=total)

        def add(self, n: int) -> None:
            self.total.update(((self.total.get() or (0,))[0] + n,))

    start = spark.createDataFrame([("a", 100), ("a", 200), ("b", 1000)], "name string, start long").groupBy("name")

    def query(rows: Any) -> Any:
        grouped = rows.groupBy("k")
        method = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        return method(Adding(), "k string, total long", "update", "None", initialState=start)

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "x", "a", 1), (at(1), "x", "c", 2)])
    driver.restart()
    driver.process([(at(1), "x", "a", 3), (at(1), "x", "b", 4)])
    assert sorted(driver.results()[:2]) == [Row(k="a", total=301), Row(k="c", total=2)]
    assert sorted(driver.results()[2:]) == [Row(k="a", total=304), Row(k="b", total=1004)]


# In CI, windows follow one, which is a stage like any other.
@pytest.mark.long
def test_a_function_may_follow_another(spark: SparkSession) -> None:
    def count(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update(((state.getOption or (0,))[0] + sum(len(frame) for frame in frames),))
        yield pd.DataFrame({"total": [key[0]], "keys": [state.get[0]]})

    def query(rows: Any) -> Any:
        by_total = in_event_time(rows).where("k != 'z'").groupBy("total")
        return by_total.applyInPandasWithState(count, "total long, keys long", "keys long", "update", "NoTimeout")

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "x", "a", 1), (at(2), "x", "b", 1), (at(3), "x", "z", 1), (at(20), "x", "c", 1)])
    driver.restart()
    driver.process([(at(90), "x", "d", 1)])
    assert driver.results() == [Row(total=1, keys=2), Row(total=1, keys=3)]


def test_an_error_names_the_key_and_leaves_the_state_as_it_was(spark: SparkSession) -> None:
    def picky(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = (state.getOption or (0,))[0] + sum(int(frame["n"].sum()) for frame in frames)
        if total > 100:
            raise ValueError("too much")
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})

    def query(rows: Any) -> Any:
        return rows.groupBy("k").applyInPandasWithState(picky, "k string, n long", "n long", "update", "NoTimeout")

    driver = StreamDriver(spark, query, SCHEMA)
    driver.process([(at(1), "x", "a", 1), (at(1), "x", "b", 1)])
    with pytest.raises(
        Exception, match=r"applyInPandasWithState\(picky\) failed for the key \('b',\): ValueError: too"
    ):
        driver.process([(at(1), "x", "a", 1), (at(1), "x", "b", 200)])
    assert sorted(driver.results()) == [Row(k="a", n=1), Row(k="b", n=1)]


class Bells(StatefulProcessor):
    """Returns each row's time when the watermark has reached it, and the watermark that it saw with the row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "before long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self.seen.update((timerValues.getCurrentWatermarkInMs(),))
        for row in rows:
            self.handle.registerTimer(int(row["at"]))
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(at=expiredTimerInfo.getExpiryTimeInMs(), before=self.seen.get()[0])


@pytest.mark.crash
@pytest.mark.interpreted
def test_timers_before_1970_wait_for_the_watermark_too(spark: SparkSession) -> None:
    def query(rows: Any) -> Any:
        timed = rows.withWatermark("ts", 0, by="feed", substreams=["x", "y"]).selectExpr("k", "unix_millis(ts) AS at")
        return timed.groupBy("k").transformWithState(Bells(), "at long, before long", "append", "EventTime")

    driver = StreamDriver(spark, query, "ts timestamp, feed string, k string, n long")
    # The other feed is silent: there is no watermark.
    driver.process([("1969-12-31 23:59:10", "x", "a", 0), ("1969-12-31 23:59:50", "x", "a", 0)])
    assert driver.results() == []
    driver.process([("1969-12-31 23:59:20", "y", "b", 0)])
    assert sorted(driver.results()) == [Row(at=-50_000, before=0), Row(at=-40_000, before=0)]
    driver.process([("1970-01-01 00:00:00", "y", "a", 0)])
    assert max(driver.results()) == Row(at=-10_000, before=-40_000)


def test_workers_need_no_sparkjet(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    from sparkjet.stateful.functions.rows import ReturnedRows
    from sparkjet.stateful.functions.user_function import _ship

    _ship()
    (tmp_path / "code").write_bytes(cloudpickle.dumps(ReturnedRows))
    script = """
import pathlib, pickle, sys
sys.modules["sparkjet"] = None
from pyspark.sql.types import StructType
returned = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
print(returned(StructType().add("at", "timestamp")).arrow)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "code")], check=True, capture_output=True, text=True
    )
    assert done.stdout == "struct<at: timestamp[us, tz=UTC]>\n"
