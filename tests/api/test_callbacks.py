"""Every public method of a query, called by everything that the query calls: it works, or is refused; nothing hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import sparkjet as sj
from sparkjet.testing import CollectingSink
from sparkjet.time import MIN
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from sparkjet.sinks.protocol import Handle, TransactionId
    from sparkjet.time.states import Json

PATIENCE = 120.0
"""Seconds after which a test fails that would hang otherwise."""

PINS = count()
"""Names of pins are used once."""
METHODS: dict[str, Callable[[sj.StreamingQuery], object]] = {
    "awaitTermination": lambda query: query.awaitTermination(0.01),
    "exception": lambda query: query.exception(),
    "explain": lambda query: query.explain(),
    "guarantees": lambda query: query.guarantees,
    "id": lambda query: query.id,
    "isActive": lambda query: query.isActive,
    "lastProgress": lambda query: query.lastProgress,
    "name": lambda query: query.name,
    "page": lambda query: query.page().stop(),
    "processAllAvailable": lambda query: query.processAllAvailable(),
    "recentProgress": lambda query: query.recentProgress,
    "retireSubstream": lambda query: query.retireSubstream("b"),
    "runId": lambda query: query.runId,
    "snapshot": lambda query: query.snapshot(f"pin-{next(PINS)}"),
    "status": lambda query: query.status,
    "stop": lambda query: query.stop(),
}
REFUSED = {"awaitTermination", "processAllAvailable", "retireSubstream"}
"""Methods that would wait for the caller."""


def called(query: sj.StreamingQuery, method: str) -> str:
    """How a call ends."""
    try:
        METHODS[method](query)
    except sj.AnalysisError as error:
        return (
            "refused" if str(error).startswith(f"[SPARKJET_ANALYSIS] {method}: the query itself calls") else str(error)
        )
    return "done"


def ends(query: sj.StreamingQuery, method: str) -> str:
    """How calls end: two, one after the other, and two at once in threads that are waited for."""
    found = {called(query, method) for _ in range(2)}
    if method not in {*REFUSED, "stop"}:
        # From such a thread the others wait for the epoch, and with it for the caller.
        with ThreadPoolExecutor(2) as threads:
            found |= set(threads.map(lambda _: called(query, method), range(2)))
    return ", ".join(sorted(found))


@dataclass
class Caller:
    """Calls methods of a query wherever the query calls something of the user's."""

    query: sj.StreamingQuery | None = None
    methods: tuple[str, ...] = ()
    """The methods to call, once for each place."""
    stopping: bool = False
    """Whether to stop it everywhere in the next epoch."""
    found: dict[tuple[str, str], str] = field(default_factory=dict)
    """How the calls ended, by place and method."""
    threads: list[threading.Thread] = field(default_factory=list)
    alone: set[str] = field(default_factory=set)
    """Places where a function found no active session."""

    def here(self, place: str) -> None:
        """Call the methods that were not called from this place yet."""
        query = self.query
        if SparkSession.getActiveSession() is None:
            self.alone.add(place)
        if self.stopping and place == "onEpochPhase begin":
            self.methods = ("stop",)
        if query is not None:
            for method in self.methods:
                if (place, method) not in self.found:
                    self.found[place, method] = "hangs"
                    self.found[place, method] = ends(query, method)


@dataclass
class Policy:
    """The highest time, called at each tick; settings and state in one, as there is one substream."""

    caller: Caller
    highest: int = MIN

    def create(self) -> Policy:
        """See :meth:`PolicySettings.create`."""
        return Policy(self.caller)

    def report(self, timestamp: int, now: int) -> None:
        """See :meth:`WatermarkPolicy.report`."""
        self.caller.here("policy.report")
        self.highest = max(self.highest, timestamp)

    def current(self, now: int) -> int:
        """See :meth:`WatermarkPolicy.current`."""
        self.caller.here("policy.current")
        return self.highest

    def snapshot(self) -> Json:
        """See :meth:`WatermarkPolicy.snapshot`."""
        self.caller.here("policy.snapshot")
        return self.highest

    def restore(self, snapshot: Json) -> None:
        """See :meth:`WatermarkPolicy.restore`."""
        assert isinstance(snapshot, int)
        self.highest = snapshot


@dataclass(frozen=True)
class Throttle:
    """None."""

    caller: Caller

    def throttle(self, ideal: int, last_emitted: int) -> int:
        """See :meth:`sparkjet.time.Throttle.throttle`."""
        self.caller.here("throttle")
        return ideal


@dataclass(frozen=True)
class Clock:
    """One that stands still."""

    caller: Caller

    def now(self) -> int:
        """See :meth:`sparkjet.Clock.now`."""
        self.caller.here("clock")
        return START * 1_000_000


@dataclass
class Sink(CollectingSink):
    """A user's own."""

    caller: Caller = field(default_factory=Caller)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`sparkjet.sinks.Sink.prepare`."""
        self.caller.here("sink.prepare")
        return super().prepare(rows, transaction)

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`sparkjet.sinks.Sink.commit`."""
        self.caller.here("sink.commit")
        super().commit(handle, between)


class Logged(logging.Handler):
    """A handler of what sparkjet logs."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller

    def emit(self, record: logging.LogRecord) -> None:
        """Each of the user's."""
        self._caller.here("log")


def start(spark: SparkSession, feed: Feed, home: Path, caller: Caller, *, overlap: bool) -> sj.StreamingQuery:
    """A query that calls all that a user can give it."""
    shape = spark.createDataFrame([("a", 1)], "k string, factor int")

    def table() -> DataFrame:
        caller.here("read_every_epoch")
        return shape

    def deliver(found: DataFrame, epoch: int) -> None:
        caller.here("foreachBatch")

    def reached(phase: sj.EpochPhase, epoch: int) -> None:
        caller.here(f"onEpochPhase {phase.value}")
        if phase is sj.EpochPhase.DECIDE:
            logging.getLogger("sparkjet.tests").info("decided")

    stream = sj.stream(feed.read(spark))
    stream = stream.withWatermark("ts", Policy(caller), by="k", substreams=["a", "b"], throttle=Throttle(caller))
    stream = stream.join(sj.read_every_epoch(table), "k", "left")
    writer = stream.writeStream.foreachBatch(deliver).option("overlapEpochs", overlap).queryName("callbacks")
    writer.onEpochPhase(reached).clock(Clock(caller))
    counts = stream.groupBy(sj.window("ts", "10 seconds")).count()
    return sj.start(
        writer,
        stream.writeStream.format(Sink(caller=caller)),
        counts.writeStream.format("noop"),
        checkpointLocation=str(home),
    )


# The places are the same; a listener's query overlaps its epochs.
@pytest.mark.crash
@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_method_from_everything_that_the_query_calls(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, overlap: bool
) -> None:
    assert set(METHODS) == {name for name in dir(sj.StreamingQuery) if not name.startswith("_")}
    caplog.set_level(logging.INFO, "sparkjet")
    feed, caller = Feed(tmp_path / "in"), Caller()
    feed.add(*rows([1, 2], k="a", v=1), *rows([1], k="b", v=1))
    handler, logger = Logged(caller), logging.getLogger("sparkjet")
    logger.addHandler(handler)
    try:
        query = start(spark, feed, tmp_path / "home", caller, overlap=overlap)
        query.processAllAvailable()
        caller.methods, caller.query = tuple(name for name in METHODS if name != "stop"), query
        feed.add(*rows([12, 13], k="a", v=1), *rows([12], k="b", v=1))
        query.processAllAvailable()
        places = {place for place, _ in caller.found}
        assert places >= {
            "clock", "foreachBatch", "log", "policy.current", "policy.report", "policy.snapshot", "read_every_epoch",
            "sink.commit", "sink.prepare", "throttle", *(f"onEpochPhase {phase.value}" for phase in sj.EpochPhase),
        }  # fmt: skip
        expected = {name: "refused" if name in REFUSED else "done" for name in caller.methods}
        assert caller.found == {(place, name): end for place in places for name, end in expected.items()}
        caller.methods, caller.stopping = (), True
        feed.add(*rows([24, 25], k="a", v=1))
        assert query.awaitTermination(PATIENCE)
    finally:
        logger.removeHandler(handler)
    stopped = {place: end for (place, method), end in caller.found.items() if method == "stop"}
    assert set(stopped.values()) == {"done"}
    # The clock is asked before; but for the first of them, all were called while the query was ending already.
    assert set(stopped) >= places - {"clock", "throttle"}
    # Who listens to the log is given to no query.
    assert caller.alone <= {"log"}
    assert not query.isActive
    assert query.exception() is None


@dataclass
class Listener(StreamingQueryListener):
    """Calls methods of a query in the thread of Spark's events."""

    caller: Caller
    heard: threading.Event = field(default_factory=threading.Event)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """In the thread of the start, before there is a handle."""
        self.caller.here("onQueryStarted")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark's of a batch, and ours of an epoch."""
        self.caller.here("onQueryProgress")
        if self.caller.query is not None:
            self.heard.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark's, now and then."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """When Spark's query has ended."""
        self.caller.here("onQueryTerminated")
        self.heard.set()


def test_a_streaming_query_listener_may_call_everything(spark: SparkSession, tmp_path: Path) -> None:
    """Spark calls it in a thread that no query waits for."""
    feed, caller = Feed(tmp_path / "in"), Caller()
    feed.add(*rows([1, 2], k="a", v=1), *rows([1], k="b", v=1))
    listener = Listener(caller)
    spark.streams.addListener(listener)
    try:
        query = start(spark, feed, tmp_path / "home", Caller(), overlap=True)
        query.processAllAvailable()
        caller.methods, caller.query = tuple(name for name in METHODS if name != "stop"), query
        feed.add(*rows([12, 13], k="a", v=1))
        query.processAllAvailable()
        assert listener.heard.wait(PATIENCE)
        assert caller.found == {("onQueryProgress", name): "done" for name in caller.methods}
        listener.heard.clear()
        caller.methods = ("stop",)
        feed.add(*rows([24, 25], k="a", v=1))
        assert query.awaitTermination(PATIENCE)
        assert listener.heard.wait(PATIENCE)
    finally:
        spark.streams.removeListener(listener)
    assert caller.found["onQueryProgress", "stop"] == "done"


class Starting(Caller):
    """Calls a method in a thread that nobody waits for."""

    def here(self, place: str) -> None:
        """See :meth:`Caller.here`."""
        if place == "onEpochPhase prepare" and self.query is not None:
            query, self.query = self.query, None

            def retire() -> None:
                self.found[place, "retireSubstream"] = called(query, "retireSubstream")

            self.threads.append(threading.Thread(target=retire))
            self.threads[0].start()


def test_what_is_refused_can_be_called_from_a_thread_that_is_not_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, caller = Feed(tmp_path / "in"), Starting()
    feed.add(*rows([1, 2], k="a", v=1), *rows([1], k="b", v=1))
    query = start(spark, feed, tmp_path / "home", caller, overlap=False)
    query.processAllAvailable()
    caller.query = query
    feed.add(*rows([12, 13], k="a", v=1))
    query.processAllAvailable()
    caller.threads[0].join(PATIENCE)
    assert list(caller.found.values()) == ["done"]
    progress = query.lastProgress
    assert progress is not None
    assert set(progress["substreams"]) == {"a"}
    query.stop()
