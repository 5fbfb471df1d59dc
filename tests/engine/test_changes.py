"""Update mode: each row comes when its window has changed, as in Spark, and no other."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.testing.stream_driver import StreamDriver
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.stream import Stream

SCHEMA = "ts timestamp, k string"


def at(second: int) -> str:
    return f"2026-01-01 12:{second // 60:02}:{second % 60:02}"


class Sent:
    """The rows that an output was sent since the last call: start and end of the window in seconds, other columns."""

    def __init__(self, driver: StreamDriver, output: int = 0) -> None:
        self._driver = driver
        self._output = output
        self._seen: Counter[Any] = Counter()

    def since(self) -> list[tuple[Any, ...]]:
        found = Counter(
            (*((each.minute * 60 + each.second) for each in row[0]), *row[1:])
            for row in self._driver.results(self._output)
        )
        new = found - self._seen
        self._seen = found
        return sorted(new.elements(), key=str)


# In CI, `ported/test_ported.py` compares with Spark's update mode.
@pytest.mark.long
def test_each_batch_sends_what_sparks_update_mode_sends(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 7], k="a"), *rows([12], k=None))
    feed.add(*rows([13], k="a"), *rows([14, 31], k="b"))

    def counted(stream: Any, window: Any) -> Any:
        # None of the rows is late, of which Spark and sparkjet have different ideas.
        return stream.withWatermark("ts", "20 seconds").groupBy(window, "k").count()

    ours = counted(sj.stream(feed.read(spark)), sj.window("ts", "20 seconds", "10 seconds"))
    sparks = counted(feed.read(spark), F.window("ts", "20 seconds", "10 seconds"))
    for name, result in (("ours_updated", ours), ("sparks_updated", sparks)):
        writer = result.writeStream.format("memory").queryName(name).outputMode("update")
        writer.trigger(availableNow=True).start().awaitTermination()

    def found(name: str) -> list[str]:
        table: DataFrame = spark.table(name)
        return sorted(map(str, table.select("window", "k", "count").collect()))

    assert spark.table("ours_updated").columns == spark.table("sparks_updated").columns
    assert found("ours_updated") == found("sparks_updated")


def tumbling(stream: Stream) -> Any:
    return stream.withWatermark("ts", "0 seconds").groupBy(sj.window("ts", "10 seconds"), "k").count()


@pytest.mark.crash
@pytest.mark.interpreted
def test_rows_wait_for_their_period_and_come_once(spark: SparkSession) -> None:
    driver = StreamDriver(spark, tumbling, SCHEMA, outputMode="update", earlyResultsPeriod="30 seconds")
    sent = Sent(driver)
    driver.process([(at(11), "a"), (at(12), "b"), (at(13), None)])
    driver.process([(at(14), "a")])
    assert sent.since() == []
    driver.advance("30 seconds")
    first = [(10, 20, "a", 2), (10, 20, "b", 1), (10, 20, None, 1)]
    assert sent.since() == first
    driver.process([(at(15), "b")])
    driver.process([(at(16), None)])
    driver.advance("30 seconds")
    assert sent.since() == [(10, 20, "b", 2), (10, 20, None, 2)]
    driver.advance("30 seconds")
    assert sent.since() == []
    driver.process([(at(17), "b")])
    assert sent.since() == [(10, 20, "b", 3)]
    driver.process([(at(18), "b"), (at(18), None)])
    # Their window closes: a has not changed since it was sent, and c is not due.
    driver.process([(at(19), None), (at(25), "c")])
    assert sent.since() == [(10, 20, "b", 4), (10, 20, None, 4)]


@pytest.mark.crash
def test_a_restart_sends_what_is_open_once_more(spark: SparkSession) -> None:
    driver = StreamDriver(spark, tumbling, SCHEMA, outputMode="update")
    sent = Sent(driver)
    driver.process([(at(1), "a"), (at(2), "b")])
    assert sent.since() == [(0, 10, "a", 1), (0, 10, "b", 1)]
    driver.process([(at(3), "a")])
    assert sent.since() == [(0, 10, "a", 2)]
    with driver.crash(at=sj.EpochPhase.PREPARE):
        driver.process([(at(4), "b")])
    driver.restart()
    driver.process()
    assert sent.since() == [(0, 10, "a", 2), (0, 10, "b", 2)]
    driver.process([(at(5), "b")])
    assert sent.since() == [(0, 10, "b", 3)]
    driver.close_windows()
    assert sent.since() == []


# In CI, the page of the guide on several results shows early rows and the final one; the fuzzer marks them too.
@pytest.mark.long
def test_marked_rows_end_with_a_final_one_for_each_window(spark: SparkSession) -> None:
    driver = StreamDriver(spark, tumbling, SCHEMA, outputMode="update", isEarly=True)
    sent = Sent(driver)
    driver.process([(at(1), "a"), (at(2), "b")])
    driver.process([(at(3), "a")])
    assert sent.since() == [(0, 10, "a", 1, True), (0, 10, "a", 2, True), (0, 10, "b", 1, True)]
    driver.process([(at(12), "c")])
    assert sent.since() == [(0, 10, "a", 2, False), (0, 10, "b", 1, False), (10, 20, "c", 1, True)]


@pytest.mark.crash
@pytest.mark.interpreted
def test_sessions_come_when_they_have_grown_or_merged(spark: SparkSession) -> None:
    def query(stream: Stream) -> list[Any]:
        windows = [sj.session_window("ts", "10 seconds", maxDuration=longest) for longest in (None, "1 minute")]
        timed = stream.withWatermark("ts", "1 minute")
        return [timed.groupBy(window, "k").count() for window in windows]

    driver = StreamDriver(spark, query, SCHEMA, outputMode="update")
    unlimited, limited = Sent(driver), Sent(driver, 1)
    driver.process([(at(1), "a"), (at(15), "a"), (at(1), "b")])
    assert unlimited.since() == limited.since() == [(1, 11, "a", 1), (1, 11, "b", 1), (15, 25, "a", 1)]
    driver.process([(at(8), "a")])
    assert unlimited.since() == limited.since() == [(1, 25, "a", 3)]
    driver.process([(at(40), "b")])
    assert unlimited.since() == [(40, 50, "b", 1)]
    # Pieces of a longest duration depend on the first event, so all of a key come.
    assert limited.since() == [(1, 11, "b", 1), (40, 50, "b", 1)]
    driver.close_windows()
    assert unlimited.since() == limited.since() == []
