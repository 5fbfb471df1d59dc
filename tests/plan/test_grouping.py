"""Windows in ``groupBy``, in Spark's spelling and in sparkjet's, over the event time under whatever name it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.grouped import RollingStream
from sparkjet.windows import SessionWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.stream import Stream

MINUTE = 60_000_000


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    schema = "ts timestamp, other timestamp, k string, v long"
    source = spark.readStream.schema(schema).json(str(tmp_path_factory.mktemp("events")))
    return sj.stream(source).withWatermark("ts", "1 minute")


def window_of(stream: Stream, *columns: Any) -> Window | SessionWindow:
    return stream.groupBy(*columns)._grouping.window


SLIDING = {
    "by name": lambda: F.window("ts", "10 minutes", "5 minutes", "1 minute"),
    "by Column": lambda: F.window(F.col("ts"), "10 minutes", "5 minutes", "1 minute").alias("window"),
    "SQL": lambda: F.expr("window(ts, '10 minutes', '5 minutes', '1 minute')"),
    "SQL intervals": lambda: F.expr("window(ts, INTERVAL '10' MINUTE, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)"),
    "a cast to the same type": lambda: F.window(
        F.col("ts").cast("timestamp"), "600 seconds", "300 seconds", "1 minute"
    ),
    "sparkjet's": lambda: sj.window(F.col("ts"), "10 minutes", "5 minutes", "1 minute"),
}


@pytest.mark.parametrize("column", SLIDING.values(), ids=SLIDING)
def test_windows_of_spark_are_understood(stream: Stream, column: Callable[[], Any]) -> None:
    window = window_of(stream, "k", column())
    assert isinstance(window, Window)
    assert (window.grid.size, window.grid.step, window.grid.offset) == (10 * MINUTE, 5 * MINUTE, MINUTE)
    assert window.name == "window"


def test_session_windows_and_names_are_understood(stream: Stream) -> None:
    session = window_of(stream, F.session_window("ts", "5 minutes").alias("visit"))
    assert isinstance(session, SessionWindow)
    assert (session.gap, session.name) == (5 * MINUTE, "visit")
    assert stream.groupBy([F.window("ts", "1 minute").alias("w"), F.upper("k")]).count().columns == [
        "w",
        "upper(k)",
        "count",
    ]
    assert stream.groupBy("k", F.window("ts", "1 minute")).sum().columns == ["k", "window", "sum(v)"]


def test_the_event_time_may_have_another_name(stream: Stream) -> None:
    renamed = stream.select(F.col("ts").alias("at"), "other", "v")
    assert renamed.groupBy(F.window("at", "1 minute")).max("v").columns == ["window", "max(v)"]
    twice = renamed.select(F.col("at").alias("then"), F.col("other").alias("at"))
    assert window_of(twice, F.window("then", "1 minute")).name == "window"
    with pytest.raises(sj.AnalysisError, match="the column 'at' has no watermark, which is on 'ts'"):
        twice.groupBy(F.window("at", "1 minute"))
    with pytest.raises(sj.AnalysisError, match=r"the column .*date_trunc.* has no watermark"):
        stream.groupBy(F.window(F.date_trunc("hour", "ts"), "1 minute"))


def test_results_are_windowed_again_by_their_window_or_its_time(stream: Stream) -> None:
    minutes = stream.groupBy(F.window("ts", "1 minute"), "k").count()
    for column in ("window", F.col("window"), F.window_time("window"), F.window_time(F.col("window"))):
        assert minutes.groupBy(F.window(column, "1 hour")).sum("count").columns == ["window", "sum(count)"]
    named = stream.groupBy(sj.window("ts", "1 minute").alias("w")).count()
    assert window_of(named, sj.window("w", "1 hour")).name == "window"
    assert named.select(F.window_time("w")).columns == ["window_time(w)"]


def test_there_is_at_most_one_window(stream: Stream) -> None:
    with pytest.raises(sj.AnalysisError, match=r"expected one window, .* or none, got 2"):
        stream.groupBy(F.window("ts", "1 minute"), F.session_window("ts", "1 minute"))
    assert stream.groupBy("k").count().columns == ["k", "count"]
    assert stream.groupBy().count().columns == ["count"]


def test_windows_without_a_watermark_are_kept_forever(stream: Stream) -> None:
    unmarked = sj.stream(stream._feed.transformations.below.source)  # type: ignore[union-attr]
    kept = unmarked.groupBy("k", F.window("other", "10 minutes", "5 minutes").alias("w")).count()
    assert isinstance(kept, RollingStream)
    assert kept.columns == ["k", "w", "count"]
    assert kept.select(F.window_time("w")).columns == ["window_time(w)"]
    with pytest.raises(sj.AnalysisError, match="session windows need a watermark"):
        unmarked.groupBy(F.session_window("ts", "1 minute"))
    with pytest.raises(sj.AnalysisError, match="'v', the time of 'window', is of type bigint"):
        unmarked.groupBy(sj.window("v", "1 minute"))


@pytest.mark.parametrize(
    ("key", "kind", "instead"),
    [
        ("map('a', id % 2)", "map<string,bigint>", "F.array_sort(F.map_entries(…))"),
        ("parse_json(string(id % 2))", "variant", "F.to_json(…)"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_what_can(spark: SparkSession, key: str, kind: str, instead: str) -> None:
    stream = sj.stream(spark.sql(f"SELECT {key} AS k FROM range(4)"))
    with pytest.raises(sj.AnalysisError, match=re.escape(f"'k' is of type {kind}, which cannot be a key.")) as refused:
        stream.groupBy("k")
    assert instead in str(refused.value)
    found = stream.groupBy(eval(instead.replace("…", "'k'")).alias("k")).count().toDF().collect()  # noqa: S307 - ours
    assert [row["count"] for row in found] == [2, 2]


def test_keys_may_be_named_by_an_alias(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(id) AS ts, id % 2 AS k FROM range(4)")
    stream = sj.stream(rows).withWatermark("ts", "1 second").alias("a")
    for grouped in (stream.groupBy("a.k"), stream.groupBy(F.window("ts", "1 minute"), F.col("a.k"))):
        found = grouped.count().select("k", "count").toDF().collect()
        assert sorted(map(tuple, found)) == [(0, 2), (1, 2)]
