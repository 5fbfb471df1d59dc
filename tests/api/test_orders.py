"""Public methods in every order: twice, by two threads at once, after a stop, after an error, within callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.diverted import DeadLetters
from sparkjet.api.writer import StreamWriter
from sparkjet.clock import SystemClock
from tests.api.test_callbacks import METHODS, PATIENCE, Caller
from tests.api.test_callbacks import start as start_calling
from tests.feed import Feed, rows
from tests.orders import at_once, outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS: Mapping[str, Callable[[sj.Stream], object]] = {
    "agg": lambda stream: stream.agg(F.count("v")),
    "alias": lambda stream: stream.alias("a"),
    "coalesce": lambda stream: stream.coalesce(1),
    "columns": lambda stream: stream.columns,
    "crossJoin": lambda stream: stream.crossJoin(stream.sparkSession.range(1)),
    "deadLetters": lambda stream: stream.divert(errors=True).deadLetters,
    "distinct": lambda stream: stream.distinct(),
    "divert": lambda stream: stream.divert(errors=True),
    "drop": lambda stream: stream.drop("v"),
    "dropDuplicates": lambda stream: stream.dropDuplicates(["k"]),
    "dropDuplicatesWithinWatermark": lambda stream: stream.dropDuplicatesWithinWatermark(["k"]),
    "drop_duplicates": lambda stream: stream.drop_duplicates(["k"]),
    "dropna": lambda stream: stream.dropna(),
    "dtypes": lambda stream: stream.dtypes,
    "expect": lambda stream: stream.expect("positive", "v > 0", "drop"),
    "fillna": lambda stream: stream.fillna(0),
    "filter": lambda stream: stream.filter("v > 0"),
    "groupBy": lambda stream: stream.groupBy("k").count(),
    "groupby": lambda stream: stream.groupby("k").count(),
    "hint": lambda stream: stream.hint("rebalance"),
    "isStreaming": lambda stream: stream.isStreaming,
    "join": lambda stream: stream.join(stream.sparkSession.sql("SELECT 1 AS w"), F.expr("v = w")),
    "lateRows": lambda stream: stream.lateRows,
    "mapInArrow": lambda stream: stream.mapInArrow(lambda batches: batches, "v long"),
    "mapInPandas": lambda stream: stream.mapInPandas(lambda batches: batches, "v long"),
    "melt": lambda stream: stream.melt("k", "v", "name", "value"),
    "na": lambda stream: stream.na.drop(),
    "printSchema": lambda stream: stream.printSchema(),
    "repartition": lambda stream: stream.repartition(2),
    "replace": lambda stream: stream.replace("a", "b"),
    "schema": lambda stream: stream.schema,
    "select": lambda stream: stream.select("v"),
    "selectExpr": lambda stream: stream.selectExpr("v + 1 AS w"),
    "sparkSession": lambda stream: stream.sparkSession,
    "toDF": lambda stream: stream.toDF(*(f"c{number}" for number in range(len(stream.columns)))),
    "transform": lambda stream: stream.transform(lambda each: each.select("v")),
    "union": lambda stream: stream.union(stream),
    "unionAll": lambda stream: stream.unionAll(stream),
    "unionByName": lambda stream: stream.unionByName(stream),
    "unpivot": lambda stream: stream.unpivot("k", "v", "name", "value"),
    "where": lambda stream: stream.where("v > 0"),
    "withColumn": lambda stream: stream.withColumn("w", F.lit(1)),
    "withColumnRenamed": lambda stream: stream.withColumnRenamed("v", "w"),
    "withColumns": lambda stream: stream.withColumns({"w": F.lit(1)}),
    "withColumnsRenamed": lambda stream: stream.withColumnsRenamed({"v": "w"}),
    "withWatermark": lambda stream: stream.withWatermark("ts", "1 second"),
    "writeStream": lambda stream: stream.writeStream,
}
"""Every public method and attribute of a stream."""

LETTERS = tuple(name for name in dir(DeadLetters) if not name.startswith("_"))
"""Every public method and attribute of dead letters; a stream has them all."""

WRITERS: Mapping[str, Callable[[StreamWriter], object]] = {
    "clock": lambda writer: writer.clock(SystemClock()),
    "foreach": lambda writer: writer.foreach(lambda row: None),
    "foreachBatch": lambda writer: writer.foreachBatch(lambda found, epoch: None),
    "format": lambda writer: writer.format("noop"),
    "onEpochPhase": lambda writer: writer.onEpochPhase(lambda phase, epoch: None),
    "option": lambda writer: writer.option("header", True),
    "options": lambda writer: writer.options(header=True),
    "outputMode": lambda writer: writer.outputMode("append"),
    "partitionBy": lambda writer: writer.partitionBy("k"),
    "queryName": lambda writer: writer.queryName("another"),
    "start": lambda writer: writer.format("noop").trigger(availableNow=True).start().awaitTermination(PATIENCE),
    "toTable": lambda writer: writer.format("memory").toTable("no_files"),
    "trigger": lambda writer: writer.trigger(availableNow=True),
}
"""Every public method of a writer; a table of memory is refused."""


def twice_and_at_once(query: sj.StreamingQuery, expected: Mapping[str, str], *, leaving: str = "") -> None:
    """Each method of a query four times: in order, and by two threads."""
    for name, method in METHODS.items():
        if name != leaving:
            calls = [lambda method=method: method(query)] * 2
            found = [*map(outcome, calls), *at_once(*calls)]
            assert all(each.startswith(expected.get(name, "done")) for each in found), (name, found)


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 12], k="a", v=1))
    return feed


def counts(spark: SparkSession, feed: Feed) -> Any:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    return stream.groupBy(sj.window("ts", "10 seconds"), "k").count()


def test_twice_and_at_once_while_it_runs_and_after_its_stop(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    query = counts(spark, feed).writeStream.format("noop").option("checkpointLocation", tmp_path / "home").start()
    query.processAllAvailable()
    twice_and_at_once(
        query, {"retireSubstream": "AnalysisError: [SPARKJET_ANALYSIS] no substream 'b': Known: all"}, leaving="stop"
    )
    assert at_once(query.stop, query.stop, query.processAllAvailable)[:2] == ["done", "done"]
    twice_and_at_once(
        query, {"retireSubstream": "AnalysisError: [SPARKJET_ANALYSIS] retireSubstream('b'): the query has ended"}
    )


def test_twice_and_at_once_after_an_error(spark: SparkSession, feed: Feed) -> None:
    def fails(phase: sj.EpochPhase, epoch: int) -> None:
        raise ValueError("broken")

    query = counts(spark, feed).writeStream.format("noop").onEpochPhase(fails).start()
    assert outcome(lambda: query.awaitTermination(PATIENCE)) == "ValueError: broken"
    raised = dict.fromkeys(("awaitTermination", "processAllAvailable"), "ValueError: broken")
    twice_and_at_once(
        query,
        {**raised, "retireSubstream": "AnalysisError: [SPARKJET_ANALYSIS] retireSubstream('b'): the query has ended"},
    )


@pytest.mark.crash
@pytest.mark.interpreted
def test_a_query_that_is_started_twice_goes_on_as_the_second(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """In turn, and by two threads at once: one of them is told that it was taken over, and no row is lost or twice."""
    writer = counts(spark, feed).writeStream.format("parquet").option("path", tmp_path / "out")
    writer.option("checkpointLocation", tmp_path / "home")
    first = writer.start()
    first.processAllAvailable()
    second = writer.start()
    feed.add(*rows([13, 25], k="a", v=1))
    second.processAllAvailable()
    taken = "FencedError: [SPARKJET_FENCED] Another driver has taken over"
    assert outcome(lambda: first.awaitTermination(PATIENCE)).startswith(taken)
    second.stop()
    feed.add(*rows([26, 37], k="a", v=1))
    writer.trigger(availableNow=True).option("closeWindowsAtEnd", True)
    found = at_once(*[lambda: writer.start().awaitTermination(PATIENCE)] * 2)
    assert "done" in found
    assert all(each == "done" or each.startswith(taken) for each in found), found
    assert sorted(row["count"] for row in sj.read_files(str(tmp_path / "out")).collect()) == [1, 2, 2, 2]


def described(stream: sj.Stream, *, dead: bool) -> dict[str, Callable[[], object]]:
    """Calls of all methods of a stream, and of its dead letters."""
    found: dict[str, Callable[[], object]] = {f"stream.{name}": partial(call, stream) for name, call in STREAMS.items()}
    letters: Any = stream.divert(errors=True).deadLetters if dead else None
    return found | {f"dead letters.{name}": partial(STREAMS[name], letters) for name in LETTERS if dead}


class Describing(Caller):
    """Calls the methods of a stream and of its writers, from everything that a query calls."""

    stream: sj.Stream
    every: int = 1
    """A place makes one of this number of calls, another place the next ones."""

    def here(self, place: str) -> None:
        """See :meth:`Caller.here`."""
        if self.query is None:
            return
        actions = described(self.stream, dead=self.every == 1)
        for name, call in WRITERS.items():
            # A query inside of it takes seconds.
            if name != "start" or place in {"foreachBatch", "sink.commit", "onEpochPhase decide"}:
                actions[f"writer.{name}"] = lambda call=call: call(self.stream.writeStream)
        for number, (name, action) in enumerate(actions.items()):
            mine = name == "writer.start" or (number + len(place)) % self.every == 0
            if mine and (place, name) not in self.found:
                self.found[place, name] = "hangs"
                self.found[place, name] = outcome(action)


@pytest.mark.parametrize("every", [pytest.param(3, marks=pytest.mark.crash), pytest.param(1, marks=pytest.mark.long)])
def test_everything_that_a_query_calls_may_describe_and_start_others(
    spark: SparkSession, feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    assert STREAMS.keys() == {name for name in dir(sj.Stream) if not name.startswith("_")}
    assert WRITERS.keys() == {name for name in dir(StreamWriter) if not name.startswith("_")}
    feed.add(*rows([1], k="b", v=1))
    other, caller = Feed(tmp_path / "other"), Describing()
    other.add(*rows([1], k="a", v=1))
    caller.stream, caller.every = sj.stream(other.read(spark)), every
    # Also before any start.
    before = {name: outcome(call) for name, call in described(caller.stream, dead=every == 1).items()}
    query = start_calling(spark, feed, tmp_path / "home", caller, overlap=False)
    query.processAllAvailable()
    caller.query = query
    feed.add(*rows([12, 13], k="a", v=1), *rows([12], k="b", v=1))
    query.processAllAvailable()
    caller.query = None
    query.stop()
    assert query.exception() is None
    places = {place for place, _ in caller.found}
    assert places >= {"clock", "foreachBatch", "policy.report", "sink.commit", "read_every_epoch", "throttle"}
    called = [name for _, name in caller.found]
    assert set(called) == {*before, *(f"writer.{name}" for name in WRITERS)}
    for (place, name), end in caller.found.items():
        expected = before.get(
            name, "AnalysisError: [SPARKJET_ANALYSIS] toTable: " if name == "writer.toTable" else "done"
        )
        assert end.startswith(expected), (place, name, end)
    undone = {name: end for name, end in before.items() if end != "done"}
    assert undone.keys() <= {"stream.dropDuplicatesWithinWatermark", "stream.lateRows"}, undone
    assert all(end.startswith(("AnalysisError: ", "AttributeError: ")) for end in undone.values())
    printed = sum(name.endswith(".printSchema") for name in [*called, *before])
    assert capsys.readouterr().out.count("root") == printed
