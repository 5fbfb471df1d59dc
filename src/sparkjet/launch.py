"""The launch of a checked query: recovery, then Spark's own query around our epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from sparkjet.engine.log import RecordLog
from sparkjet.engine.outputs import Outputs
from sparkjet.engine.parts import Parts, configure
from sparkjet.engine.recovery import recover
from sparkjet.engine.spark_sources import guarantee_of_sources
from sparkjet.paths import PLAIN_FILES
from sparkjet.query import StreamingQuery
from sparkjet.sinks.outbox import OutboxSink
from sparkjet.sinks.protocol import Guarantee
from sparkjet.snapshots import DirectoryStore
from sparkjet.ticker import Ticker, tick_interval

if TYPE_CHECKING:
    from sparkjet.clock import Clock
    from sparkjet.engine.plan import Plan
    from sparkjet.engine.steps import StepListener

_LOG_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True)
class Launch:
    """A checked query on its way to running; ``trigger`` is as Spark's ``trigger`` takes it."""

    plan: Plan
    home: Path
    guarantee: Guarantee
    partitions: int
    overlap: bool
    trigger: Mapping[str, str | bool]
    close_at_end: bool
    name: str | None
    clock: Clock
    listener: StepListener

    def start(self) -> StreamingQuery:
        """Recover and start; see :func:`sparkjet.start`."""
        store = DirectoryStore(self.home / "snapshots")
        store.open("checkpointLocation")
        session = _own_session(self.plan.source.sparkSession)
        configure(session, self.partitions)
        sinks = {output.name: output.sink for output in self.plan.outputs}
        for sink in sinks.values():
            if isinstance(sink, OutboxSink):
                sink.attach(self.home / "snapshots" / "outbox", session)
        parts = Parts(
            plan=self.plan,
            guarantee=self.guarantee,
            partitions=self.partitions,
            overlap=self.overlap,
            session=session,
            store=store,
            log=RecordLog(store),
            outputs=Outputs(sinks),
            clock=self.clock,
            listener=self.listener,
        )
        engine, checkpoint = recover(parts, self.home / "spark")
        # With availableNow the input decides when the query ends, not the clock.
        ticking = self.plan.uses_clock and "availableNow" not in self.trigger
        ticker = Ticker(tick_interval(self.trigger.get("processingTime"))) if ticking else None
        query = StreamingQuery(engine, self.plan, self._guarantees(), close_at_end=self.close_at_end, ticker=ticker)
        writer = self.plan.source.writeStream.foreachBatch(query._run_batch)  # noqa: SLF001
        writer = writer.option("checkpointLocation", f"file:{checkpoint.directory}")
        if self.name is not None:
            writer = writer.queryName(self.name)
        if self.trigger:
            writer = writer.trigger(**self.trigger)  # type: ignore[arg-type]
        fenced = engine.fenced()
        if fenced is not None:
            # Spark ends a running query when one of the same id starts: that must not be our successor's.
            raise fenced
        with _plain_logs(self.plan.source.sparkSession):
            query._attach(writer.start())  # noqa: SLF001
        return query

    def _guarantees(self) -> dict[str, str]:
        """What each sink gives: its own promise, the query's or that of the sources, whichever is weakest."""
        order = list(Guarantee)
        sources = guarantee_of_sources(self.plan.source)
        return {
            output.name: max(self.guarantee, output.sink.guarantee, sources, key=order.index).value
            for output in self.plan.outputs
        }


def _own_session(session: SparkSession) -> SparkSession:
    """A session with the user's settings, so that ours do not change the user's."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


@contextmanager
def _plain_logs(session: SparkSession) -> Iterator[None]:
    """Let a query that starts write its offset and commit logs by the shortest way.

    Spark's default for local files starts a dozen processes a micro-batch, to see whether names are links. What it
    buys, a rename that refuses to overwrite, protects a log that two drivers share. These logs are of one run alone,
    and made anew from the record at each start.
    """
    before = session.conf.get(_LOG_FILES, None)
    # Spark's query takes a session of its own with all of this: what a user has set has to stay in it, what we set
    # `configure` takes out again.
    own_files = any(session.conf.get(name, None) is not None for name in PLAIN_FILES)
    settings = {_LOG_FILES: _BY_FILE_SYSTEM, **({} if own_files else PLAIN_FILES)}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)
        if before is not None:
            session.conf.set(_LOG_FILES, before)
