"""Objects of Spark Connect are refused by name at every entry; the entries are found by their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Column, GroupedData
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.api.aggregate_rows import GroupedResults
from sparkjet.api.grouped import GroupedStream, KeyedStream, LateStream, WindowedStream
from sparkjet.api.stateful_methods import _initial_rows
from sparkjet.api.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = r"belongs to Spark Connect.*classic session"


def of_connect(kind: type) -> Any:
    """An object as a session of Spark Connect has it."""
    made = {"__module__": "pyspark.sql.connect.column", "__new__": object.__new__, "__init__": object.__init__}
    return type(kind.__name__, (kind,), made)()


C, D, S = of_connect(Column), of_connect(object), of_connect(object)
# By the function that has the signature.
METHODS: dict[str, Callable[[Any], Any]] = {
    "Stream.agg": lambda s: s.agg(C),
    "Expecting.expect": lambda s: s.expect("known", C, "drop"),
    "FrameMethods.crossJoin": lambda s: s.crossJoin(D),
    "FrameMethods.drop": lambda s: s.drop(C),
    "FrameMethods.filter": lambda s: s.filter(C),
    "FrameMethods.join": lambda s: s.groupBy(F.window("ts", "1 minute")).count().lateRows.join(D, "k"),
    "FrameMethods.repartition": lambda s: s.repartition(2, C),
    "FrameMethods.select": lambda s: s.select("k", C),
    "FrameMethods.where": lambda s: s.where(C),
    "FrameMethods.withColumn": lambda s: s.withColumn("x", C),
    "FrameMethods.withColumns": lambda s: s.withColumns({"x": C}),
    "Stream.groupBy": lambda s: s.groupBy(C),
    "StreamJoins.join": lambda s: s.join(D, "k"),
    "GroupedMethods.agg": lambda s: s.groupBy("k").agg(C),
    "WindowedStream.groupBy": lambda s: s.groupBy(F.window("ts", "1 minute")).count().groupBy(C),
    "WindowedStream.join": lambda s: s.groupBy(F.window("ts", "1 minute")).count().join(D, "count"),
    "AggregateRows.agg": lambda s: s.groupBy("k").count().agg(C),
    "AggregateRows.cube": lambda s: s.groupBy("k").count().cube(C),
    "AggregateRows.rollup": lambda s: s.groupBy("k").count().rollup("k", C),
    "AggregateRows.groupingSets": lambda s: s.groupBy("k").count().groupingSets([[C]], C),
    "AggregateRows.orderBy": lambda s: s.groupBy("k").count().orderBy(C),
    "AggregateRows.sort": lambda s: s.groupBy("k").count().sort("k", C),
    "GroupedResults.agg": lambda s: s.groupBy("k").count().groupBy("count").agg(C),
}


@pytest.fixture
def stream(spark: SparkSession) -> Stream:
    rows = spark.sql("SELECT timestamp_seconds(id) AS ts, id AS k FROM range(2)")
    return sj.stream(rows).withWatermark("ts", "1 minute")


def test_every_method_that_takes_columns_or_frames_is_here() -> None:
    found = {
        method.__qualname__
        for kind in (Stream, GroupedStream, WindowedStream, LateStream, KeyedStream, GroupedResults)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and any(
            each in str(inspect.signature(method)).partition("->")[0]
            for each in ("Column |", "Column]", "Column'", "DataFrame")
        )
    }
    assert found == METHODS.keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_refuses_it(stream: Stream, method: str) -> None:
    with pytest.raises(sj.AnalysisError, match=REFUSED):
        METHODS[method](stream)


@pytest.mark.parametrize(
    "entry",
    [
        lambda: sj.stream(D),
        lambda: sj.read_once(D),
        lambda: sj.read_every_epoch(lambda: D),
        lambda: sj.register_sources(S),
        lambda: sj.window(C, "1 minute"),
        lambda: sj.session_window(C, "1 minute"),
        lambda: sj.session_window("ts", C),
    ],
)
def test_a_function_refuses_it(spark: SparkSession, entry: Callable[[], Any]) -> None:
    with pytest.raises(sj.AnalysisError, match=REFUSED):
        entry()


def test_files_are_not_read_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # By its name: the session is the active one, and Spark Connect needs a server to have one.
    monkeypatch.setattr("sparkjet.sinks.read_files.SparkSession", SimpleNamespace(active=lambda: S))
    with pytest.raises(sj.AnalysisError, match=f"read_files: this object {REFUSED}"):
        sj.read_files("/nowhere")


def test_initial_state_of_a_function_refuses_it() -> None:
    with pytest.raises(sj.AnalysisError, match=f"transformWithState: this GroupedData {REFUSED}"):
        _initial_rows("transformWithState", of_connect(GroupedData), ())


@pytest.mark.parametrize("name", J.__all__)
def test_every_aggregate_refuses_it(spark: SparkSession, name: str) -> None:
    others = {"percentage": 0.5, "n": 2, "nBins": 2}
    parameters = inspect.signature(getattr(J, name)).parameters.values()
    taken = [each.name for each in parameters if "ColumnOrName" in str(each.annotation)]
    assert taken
    for column in taken:
        given = [
            C if each.name == column else others.get(each.name, "k")
            for each in parameters
            if each.default is each.empty or each.name == column
        ]
        with pytest.raises(sj.AnalysisError, match=REFUSED):
            getattr(J, name)(*given)
