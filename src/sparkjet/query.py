"""The handle of a running query, with the shape of Spark's ``StreamingQuery``."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from sparkjet.engine.epoch import Engine, Parts, configure
from sparkjet.engine.log import RecordLog
from sparkjet.engine.outputs import Outputs
from sparkjet.engine.recovery import recover
from sparkjet.errors import FencedError, SparkjetError
from sparkjet.sinks.outbox import OutboxSink
from sparkjet.sinks.protocol import Guarantee
from sparkjet.snapshots import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.clock import Clock
    from sparkjet.engine.pipeline import Pipeline
    from sparkjet.engine.steps import StepListener
    from sparkjet.sinks.protocol import Sink

logger = logging.getLogger("sparkjet")

RECENT = 100


class _StoppedError(SparkjetError):
    """The query is being stopped; the batch that Spark has just planned is not run."""


@dataclass(frozen=True)
class Trigger:
    """When micro-batches run."""

    processing_time: str | None = None
    available_now: bool = False


@dataclass(frozen=True)
class Launch:
    """A checked query on its way to running."""

    pipeline: Pipeline
    sinks: Mapping[str, Sink]
    home: Path
    guarantee: Guarantee
    partitions: int
    trigger: Trigger
    close_at_end: bool
    name: str | None
    clock: Clock
    listener: StepListener

    def start(self) -> StreamingQuery:
        """Recover and start; see :meth:`sparkjet.writer.StreamWriter.start`."""
        store = DirectoryStore(self.home / "snapshots")
        store.open("checkpointLocation")
        session = _own_session(self.pipeline.steps.source.sparkSession)
        configure(session, self.partitions)
        for sink in self.sinks.values():
            if isinstance(sink, OutboxSink):
                sink.attach(self.home / "snapshots" / "outbox", session)
        parts = Parts(
            pipeline=self.pipeline,
            guarantee=self.guarantee,
            partitions=self.partitions,
            session=session,
            store=store,
            log=RecordLog(store),
            outputs=Outputs(self.sinks),
            clock=self.clock,
            listener=self.listener,
        )
        engine, checkpoint = recover(parts, self.home / "spark")
        query = StreamingQuery(engine, self._guarantees(), close_at_end=self.close_at_end)
        writer = self.pipeline.steps.source.writeStream.foreachBatch(query._run_batch)  # noqa: SLF001
        writer = writer.option("checkpointLocation", f"file:{checkpoint.directory}")
        if self.name is not None:
            writer = writer.queryName(self.name)
        if self.trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.trigger.processing_time is not None:
            writer = writer.trigger(processingTime=self.trigger.processing_time)
        fenced = engine.fenced()
        if fenced is not None:
            # Spark ends a running query when one of the same id starts: that must not be our successor's.
            raise fenced
        query._attach(writer.start())  # noqa: SLF001
        return query

    def _guarantees(self) -> dict[str, str]:
        """What each sink gives: its own promise or the query's, whichever is weaker."""
        order = list(Guarantee)
        return {name: max(self.guarantee, sink.guarantee, key=order.index).value for name, sink in self.sinks.items()}


class StreamingQuery:
    """A started query. Thread-safe; every method runs on the driver."""

    def __init__(self, engine: Engine, guarantees: Mapping[str, str], *, close_at_end: bool) -> None:
        self._engine = engine
        self._close_at_end = close_at_end
        self._guarantees = dict(guarantees)
        self._spark: SparkQuery
        self._epoch = threading.Lock()
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._failure: BaseException | None = None
        self._progress: deque[dict[str, Any]] = deque(maxlen=RECENT)

    @property
    def id(self) -> str:
        """The query's identity, the same in every run."""
        return self._engine.record.query

    @property
    def runId(self) -> str:
        """Identity of this run."""
        return self._engine.record.run

    @property
    def name(self) -> str | None:
        """Name given with ``queryName``."""
        return self._spark.name

    @property
    def isActive(self) -> bool:
        """Whether the query is still working, the closing epoch included."""
        return not self._finished.is_set()

    @property
    def status(self) -> dict[str, Any]:
        """What Spark says the query is doing."""
        return dict(self._spark.status)

    @property
    def guarantees(self) -> dict[str, str]:
        """What each sink really gives."""
        return dict(self._guarantees)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Spark's progress of the last batch with ours; None before the first epoch.

        Ours are ``substreams`` (watermark, idle, lateRows, nullTimestamps of each), ``lateRows`` and
        ``nullTimestamps`` (totals), ``watermark``, ``epoch`` (number, milliseconds of each step), ``snapshot``
        (deltas and entries) and ``sinks``.
        """
        recent = self.recentProgress
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the last epochs, oldest first."""
        by_batch = {entry["batchId"]: entry for entry in (json.loads(p.json) for p in self._spark.recentProgress)}
        return [{**by_batch.get(ours["batchId"], {}), **ours} for ours in list(self._progress)]

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; with a timeout in seconds, say whether it has come.

        Raises:
            SparkjetError, StreamingQueryException: What the query failed with.
        """
        ended = self._finished.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return None if timeout is None else ended

    def exception(self) -> BaseException | None:
        """What the query failed with, None if it did not."""
        return self._failure

    def processAllAvailable(self) -> None:
        """Wait until all input that is there now has been processed and committed. For tests."""
        self._spark.processAllAvailable()

    def explain(self, extended: bool = False) -> None:
        """Print Spark's plan of the last batch's source."""
        self._spark.explain(extended)

    def stop(self, timeout: float | None = None) -> None:
        """End the query after the current epoch has committed; a second call does nothing.

        Args:
            timeout: Seconds to wait for the epoch.

        Raises:
            TimeoutError: If the epoch was still running; it goes on, and the query stops after it.
        """
        self._stopping.set()
        if not self._epoch.acquire(timeout=-1 if timeout is None else timeout):
            message = f"Epoch {self._engine.progress.epoch} is still running; the query stops after it."
            raise TimeoutError(message)
        try:
            # Only between epochs: Spark's own stop would interrupt one in the middle.
            self._spark.stop()
        finally:
            self._epoch.release()
        self._finished.wait()

    def _attach(self, spark_query: SparkQuery) -> None:
        self._spark = spark_query
        threading.Thread(target=self._supervise, name=f"sparkjet-{self.id}", daemon=True).start()

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Called by Spark in the query's thread."""
        while not self._epoch.acquire(timeout=0.05):
            if self._stopping.is_set():
                break
        else:
            try:
                self._refuse_if_stopping()
                if self._engine.run_batch(batch, batch_id):
                    self._note()
            except _StoppedError:
                raise
            except BaseException as error:
                self._fail(error)
                raise
            finally:
                self._epoch.release()
            return
        self._refuse_if_stopping()

    def _refuse_if_stopping(self) -> None:
        # Returning instead would let Spark mark a batch as done that no record names.
        if self._stopping.is_set():
            message = "The query is being stopped."
            raise _StoppedError(message)

    def _supervise(self) -> None:
        try:
            try:
                self._spark.awaitTermination()
            except Exception as error:  # noqa: BLE001 - whatever ended Spark's query is kept for the user
                if not self._stopping.is_set() and self._failure is None:
                    self._fail(error)
            if self._close_at_end and self._failure is None and not self._stopping.is_set():
                with self._epoch:
                    if self._used_up() and self._engine.close_windows():
                        self._note()
        except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
            self._fail(error)
        finally:
            self._finished.set()

    def _used_up(self) -> bool:
        """Whether Spark's query has come to the end of its input, rather than been stopped from outside.

        ``spark.streams`` gives everybody the query to stop, and Spark itself stops it when one of the same id starts
        in the same process. Closing the windows then would make late what was still to be read.
        """
        # Not in Spark's API, whose status says "Stopped" in either case.
        used_up = bool(self._spark._jsq.streamingQuery().noNewData())  # noqa: SLF001
        if not used_up:
            logger.warning("query %s was stopped from outside before the end of its input; windows stay open", self.id)
        return used_up

    def _fail(self, error: BaseException) -> None:
        """Keep what the query failed with.

        A successor removes the checkpoint that Spark is still using here, so a driver that was taken over fails with
        whatever missed its files first; what its user must know is that it was taken over.
        """
        if not isinstance(error, FencedError):
            # The store may be what has failed.
            with contextlib.suppress(OSError, SparkjetError):
                fenced = self._engine.fenced()
                if fenced is not None:
                    fenced.__cause__ = error
                    error = fenced
        self._failure = error

    def _note(self) -> None:
        """Keep the progress of the epoch that has just ended."""
        engine = self._engine
        self._progress.append(engine.progress.describe(engine.record, engine.state))


def _own_session(session: SparkSession) -> SparkSession:
    """A session with the user's settings, so that ours do not change the user's."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
