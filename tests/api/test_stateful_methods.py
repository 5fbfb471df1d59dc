from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import sparkjet as sj
from sparkjet.errors import AnalysisError


class Nothing(StatefulProcessor):
    def init(self, handle: Any) -> None:
        handle.getValueState("value", "x long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return iter(())


class Broken(Nothing):
    def init(self, handle: Any) -> None:
        handle.getValueState("value", "x lung")


def state(stream: Any, **changed: Any) -> Any:
    arguments: dict[str, Any] = {
        "func": lambda key, frames, state: [],
        "outputStructType": "n long",
        "stateStructType": "n long",
        "outputMode": "append",
        "timeoutConf": "NoTimeout",
    }
    return stream.groupBy("k").applyInPandasWithState(**(arguments | changed))


def transform(stream: Any, processor: Any = None, **changed: Any) -> Any:
    arguments: dict[str, Any] = {"outputStructType": "n long, at timestamp", "outputMode": "append", "timeMode": "None"}
    return stream.groupBy("k").transformWithStateInPandas(processor or Nothing(), **(arguments | changed))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda s: state(s, timeoutConf="Never"), "timeoutConf='Never' must be one of NoTimeout"),
        (lambda s: state(s, timeoutConf="EventTimeTimeout"), r"event time needs withWatermark"),
        (lambda s: state(s, outputMode="complete"), "outputMode='complete' must be one of append, update"),
        (lambda s: state(s, outputStructType="n lung"), "outputStructType='n lung' is not a schema"),
        (lambda s: state(s, stateStructType="long"), "stateStructType='long' has no columns"),
        (lambda s: state(s, func="count"), "func='count' is not a function"),
        (lambda s: transform(s, timeMode="Sometimes"), "timeMode='Sometimes' must be one of None, ProcessingTime"),
        (lambda s: transform(s, timeMode="EventTime"), "event time needs withWatermark"),
        (lambda s: transform(s, Broken()), "Broken.init failed: init: schema='x lung' is not a schema"),
        (lambda s: transform(s, initialState=1), r"initialState is int; give a DataFrame.groupBy\(…\)"),
        (
            lambda s: transform(s, initialState=s.sparkSession.range(3).groupBy("id")),
            "initialState is grouped by bigint, the stream by string",
        ),
        (
            lambda s: transform(s.withWatermark("ts", "1 second"), timeMode="EventTime", eventTimeColumnName="when"),
            "eventTimeColumnName='when' is not a column; .*Known: at, n",
        ),
        (
            lambda s: transform(s.withWatermark("ts", "1 second"), timeMode="EventTime", eventTimeColumnName="n"),
            "eventTimeColumnName='n' is of type bigint, not timestamp",
        ),
    ],
)
def test_wrong_arguments_are_named(spark: SparkSession, query: Callable[[Any], Any], reason: str) -> None:
    rows = spark.createDataFrame([], "ts timestamp, k string")
    with pytest.raises(AnalysisError, match=reason):
        query(sj.stream(rows))


def test_modes_are_of_any_case_as_in_spark(spark: SparkSession) -> None:
    stream = sj.stream(spark.createDataFrame([], "ts timestamp, k string")).withWatermark("ts", "1 second")
    found = transform(stream, timeMode="eventtime", outputMode="Update", eventTimeColumnName="at")
    assert found.columns == ["n", "at"]
    assert found.groupBy(sj.window("at", "1 minute"), "n").count().columns == ["window", "n", "count"]


def test_a_stream_by_keys_that_is_windowed_has_no_state(spark: SparkSession) -> None:
    stream = sj.stream(spark.createDataFrame([], "ts timestamp, k string")).withWatermark("ts", "1 second")
    with pytest.raises(AttributeError, match=r"on groupBy.* of keys alone, without a window"):
        stream.groupBy(sj.window("ts", "1 minute"), "k").applyInPandasWithState()


def test_a_window_that_is_a_column_is_a_key_of_functions_with_state(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(id) AS ts, 'a' AS k FROM range(0, 90)")
    windows = sj.stream(rows).withWatermark("ts", "1 second").withColumn("w", F.window("ts", "1 minute"))

    def counted(key: Any, frames: Any, state: Any) -> Any:
        yield pd.DataFrame({"key": [str(len(key))], "rows": [sum(map(len, frames))]})

    found = windows.groupBy("w", "k").applyInPandasWithState(
        counted, "key string, rows long", "n long", "append", "EventTimeTimeout"
    )
    assert sorted(map(tuple, found.toDF().collect())) == [("2", 30), ("2", 60)]
    transformed = windows.groupBy(F.col("w")).transformWithStateInPandas(Nothing(), "n long", "append", "EventTime")
    assert transformed.columns == ["n"]
