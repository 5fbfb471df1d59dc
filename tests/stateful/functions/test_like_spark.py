"""Users' functions with state, run by Spark's own operators and by ours over the same batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import GroupedData, Row, SparkSession
from pyspark.sql import types as T
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from sparkjet.testing import StreamDriver
from tests.lines import needs_state_processors
from tests.ported.both import Both
from tests.ported.installed import example, processor

SCHEMA = "at timestamp, k string, n long, x double, names array<string>, i int, price decimal(10,2), day date"


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> Iterator[Both]:
    """Three batches; the last one only moves the watermark."""
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    yield Both(spark, tmp_path, SCHEMA).arrive(
        [row("00:00", "a", 1), row("00:01", "a", None), row("00:02", "b", 3)],
        [row("00:10", "a", 4), row("00:11", "c", 5), row("00:03", "b", 6)],
        [row("01:00", "d", 7)],
    )
    spark.conf.set(provider, before)


def row(at: str, k: str, n: int | None) -> dict[str, Any]:
    of_n = {} if n is None else {"x": n / 2, "i": n, "price": f"{n}.50", "names": ["p", k]}
    return {"at": f"2026-01-01T00:{at}", "k": k, "n": n, "day": "2026-01-01", **of_n}


def compare(both: Both, query: Callable[[Any], Any]) -> list[Row]:
    found = sorted(both.sparkjet(query))
    assert found == sorted(both.spark(query))
    return found


def witness(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Returns all it gets, with the types: what user code could depend on."""
    seen = [[(type(each).__name__, each) for each in key], state.hasTimedOut, state.exists]
    for frame in frames:
        values = [[(type(each).__name__, str(each)) for each in frame[name]] for name in frame]
        seen += [list(frame.columns), list(frame.index), values]
        if not state.hasTimedOut:
            seen.append([str(kind) for kind in frame.dtypes])
    if state.exists:
        seen.append([(type(each).__name__, str(each)) for each in state.get])
    seen.append(state.getCurrentWatermarkMs() if state.hasTimedOut else None)
    if state.hasTimedOut:
        state.remove()
    else:
        last = frame["at"].iloc[-1]
        state.update((len(frame), last, frame["day"].iloc[0], frame["x"].iloc[0], key[0]))
        state.setTimeoutTimestamp(int(last.timestamp() * 1000) + 5_000)
    yield pd.DataFrame({"k": [key[0]], "seen": [repr(seen)], "last": [frame["day"].iloc[-1] if len(frame) else None]})


@pytest.mark.crash
def test_a_function_sees_what_it_sees_in_spark(both: Both) -> None:
    # No arrays or maps: Spark 4.3 fails to read their schema in its workers.
    state = "n long, last timestamp, day date, x double, k string"
    found = compare(
        both,
        lambda rows: (
            rows.withWatermark("at", "30 seconds")
            .groupBy("k")
            .applyInPandasWithState(
                witness, "k string, seen string, last date", state, "append", GroupStateTimeout.EventTimeTimeout
            )
        ),
    )
    assert len(found) == 6 + 3


@pytest.mark.crash
def test_sessions_in_event_time(both: Both) -> None:
    def sessions(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            yield pd.DataFrame({"k": [key[0]], "events": [state.get[0]]})
            state.remove()
            return
        events, last = state.getOption or (0, 0)
        for frame in frames:
            events, last = events + len(frame), max(last, int(frame["at"].max().timestamp() * 1000))
        state.update((events, last))
        state.setTimeoutTimestamp(last + 20_000)

    def query(rows: Any) -> Any:
        grouped = rows.withWatermark("at", "5 seconds").groupBy("k")
        return grouped.applyInPandasWithState(
            sessions, "k string, events long", "events long, last long", "append", "EventTimeTimeout"
        )

    assert compare(both, query) == [Row(k="a", events=3), Row(k="b", events=2), Row(k="c", events=1)]


class Everything(StatefulProcessor):
    """All kinds of variables and timers; returns what it sees of them."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long, last timestamp, names array<string>")
        self.items = handle.getListState("items", T.StructType().add("x", "double"))
        self.entries = handle.getMapState("entries", "name string", "n long, day date")

    def seen(self, timer_values: Any) -> str:
        value = self.value.get() if self.value.exists() else None
        state = [value, list(self.items.get()), sorted(self.entries.iterator()), sorted(self.handle.listTimers())]
        at = timer_values.getCurrentProcessingTimeInMs() > 10**12
        return repr([state, self.entries.containsKey(("a",)), self.entries.getValue(("zz",)), at])

    def take(self, n: Any, x: Any, at: Any, day: Any, names: Any) -> None:
        n = None if n is None or math.isnan(n) else int(n)
        self.value.update((n, at.replace(tzinfo=None), None if names is None else list(names)))
        self.items.appendValue((x,))
        self.entries.updateValue((f"{n}",), (n, day))
        self.handle.registerTimer(int(at.timestamp() * 1000) + 5_000)

    def close(self) -> None:
        pass


class InPandas(Everything):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        count = 0
        for frame in rows:
            count += len(frame)
            for each in frame.sort_values("at").itertuples():
                self.take(each.n, each.x, each.at, each.day, each.names)
        kinds = [type(each).__name__ for each in key]
        yield pd.DataFrame({"k": key, "seen": [repr((kinds, list(frame.columns), count)) + self.seen(timerValues)]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame(
            {"k": [key[0]], "seen": [f"{expiredTimerInfo.getExpiryTimeInMs()} {self.seen(timerValues)}"]}
        )


class InRows(Everything):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        shown = []
        for each in sorted(rows, key=lambda row: row.at):
            shown.append(repr(each))
            self.take(each.n, each.x, each.at, each.day, each.names)
        yield Row(k=key[0], seen=f"{shown} {self.seen(timerValues)}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(k=key[0], seen=f"{expiredTimerInfo.getExpiryTimeInMs()} {self.seen(timerValues)}")


@pytest.mark.crash
@pytest.mark.parametrize("pandas", [True, pytest.param(False, marks=pytest.mark.long)], ids=["pandas", "rows"])
def test_a_processor_sees_what_it_sees_in_spark(both: Both, pandas: bool) -> None:

    def query(rows: Any) -> Any:
        grouped = rows.withWatermark("at", "5 seconds").groupBy("k")
        method = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        processor = InPandas() if pandas else InRows()
        return method(processor, "k string, seen string", "append", "EventTime")

    found = compare(both, query)
    assert len(found) == 6 + 6


# Processors of rows are in test_operator.py.
@pytest.mark.parametrize(
    "pandas",
    [pytest.param(True, id="pandas"), pytest.param(False, id="rows", marks=[needs_state_processors, pytest.mark.long])],
)
def test_the_processor_of_sparks_documentation(spark: SparkSession, pandas: bool) -> None:
    method = GroupedData.transformWithStateInPandas if pandas else GroupedData.transformWithState
    documented = processor(method)()

    def query(rows: Any) -> Any:
        grouped = rows.groupBy("id")
        run = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        return run(documented, "id int, count int" if pandas else "id array<int>, count int", "update", "None")

    driver = StreamDriver(spark, query, "id int, temperature int")
    driver.process([(0, 123), (0, 23), (1, 33), (1, 188), (1, 88)])
    driver.process([(0, 500)])
    ids = (lambda key: key) if pandas else (lambda key: [key])
    assert sorted(driver.results()) == [Row(id=ids(0), count=1), Row(id=ids(0), count=2), Row(id=ids(1), count=3)]


# In CI, functions and processors see what they see in Spark, above.
@pytest.mark.long
def test_the_example_of_sparks_distribution(spark: SparkSession) -> None:
    """Sessions of words, from the file that comes with Spark."""
    function = example("structured_network_wordcount_session_window").run("def func")
    fields = [T.StructField("sessionId", T.StringType())]
    fields += [T.StructField(name, T.LongType()) for name in ("count", "start", "end")]
    driver = StreamDriver(
        spark,
        lambda events: events.groupBy("sessionId").applyInPandasWithState(
            function,
            T.StructType(fields),
            T.StructType(fields[1:]),
            "Update",
            GroupStateTimeout.ProcessingTimeTimeout,
        ),
        "sessionId string, timestamp long",
    )
    driver.process([("cat", 1), ("dog", 2), ("cat", 3)])
    driver.advance("9 seconds")
    driver.process([("dog", 11)])
    assert driver.results() == []
    driver.advance("2 seconds")
    assert driver.results() == [Row(sessionId="cat", count=2, start=1, end=3)]
    driver.advance("10 seconds")
    assert driver.results()[1:] == [Row(sessionId="dog", count=2, start=2, end=11)]
