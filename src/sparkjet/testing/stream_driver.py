"""The stream driver: a query run epoch by epoch, with rows, clock, crashes and restarts in a test's hand."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, TimestampType

from sparkjet.catalyst.physical_plans import own_session
from sparkjet.clock import ManualClock
from sparkjet.engine.committer import Committer
from sparkjet.engine.context import EngineContext
from sparkjet.engine.receivers import Receivers
from sparkjet.engine.recovery import recover
from sparkjet.errors import AnalysisError
from sparkjet.plan.outputs import Rows
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.protocol import Guarantee
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.schemes import directory_at
from sparkjet.testing.collecting_sink import CollectingSink
from sparkjet.testing.driven_query import DrivenQuery, Query
from sparkjet.testing.driven_source import DrivenSource, Record
from sparkjet.testing.driver_options import DriverOptions
from sparkjet.time import MIN, parse_duration

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Row

    from sparkjet.engine.engine import Engine
    from sparkjet.engine.phases import EpochPhase, PhaseListener
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.sinks.protocol import Sink
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.time.durations import Duration


class StreamDriver:
    """Runs a query with the real engine, record log, recovery and sinks, one epoch at each call of :meth:`process`.

    Only what surrounds the engine is replaced: Spark's micro-batch loop by this object, the source by the rows that
    :meth:`process` is given, the wall clock by one that stands still. So a test decides what arrives together, what is
    late, when a substream is idle, and where the query crashes. Not thread-safe.

    Attributes:
        clock: The processing time. :meth:`advance` lets it go on; ``clock.advance(-microseconds)`` sets it back.
        sinks: The sinks of the outputs.

    Args:
        spark: The session.
        query: A function that takes a stream for each input and returns the results, ``result.lateRows`` where
            late rows are wanted, and streams whose own rows are written. It is called for every batch too, so it must
            only describe the query.
        schema: Columns of the input, as ``createDataFrame`` takes them; a list with one for each input of a union.
        sinks: Sinks of the outputs, in their order; a :class:`CollectingSink` each by default.
        directory: The query's home; by default a temporary directory that goes with this object.
        store: Where snapshots go; by default a directory store in the home.
        clock: The processing time; by default it stands at 1970.
        onEpochPhase: As ``writeStream.onEpochPhase``.
        **options: ``processingGuarantee``, ``overlapEpochs``, ``statePartitions`` (2), ``onChange``,
            ``publishAfter``, ``outputMode``, ``earlyResultsPeriod``, ``isEarly``, ``maxStateEntries``,
            ``maxStateBytes``, ``onStateLimit`` and ``isShed``, as of ``writeStream``.

    Raises:
        AnalysisError: The query or an option is wrong.

    >>> import sparkjet as sj
    >>> driver = StreamDriver(
    ...     spark,
    ...     lambda clicks: (
    ...         clicks.withWatermark("ts", "2 seconds").groupBy(sj.window("ts", "10 seconds"), "page").count()
    ...     ),
    ...     "ts timestamp, page string",
    ... )
    >>> driver.process([("2026-01-01 12:00:01", "home"), ("2026-01-01 12:00:09", "home")])
    >>> driver.results()
    []
    >>> driver.process([("2026-01-01 12:00:12", "home")])
    >>> [(row.page, row["count"]) for row in driver.results()]
    [('home', 2)]
    """

    def __init__(
        self,
        spark: SparkSession,
        query: Query,
        schema: str | StructType | Sequence[str | StructType],
        *,
        sinks: Sequence[Sink] = (),
        directory: Path | None = None,
        store: SnapshotStore | None = None,
        clock: ManualClock | None = None,
        onEpochPhase: PhaseListener | None = None,
        **options: object,
    ) -> None:
        self._session = own_session(spark)
        self._source = DrivenSource(spark, [schema] if isinstance(schema, (str, StructType)) else schema)
        self._options = DriverOptions.of(options)
        self._crash_point = CrashPoint(onEpochPhase)
        self._home = directory
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="sparkjet-driver-"))
            weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        self.store = store if store is not None else DirectoryStore(self._home / "snapshots")
        self.clock = clock if clock is not None else ManualClock()
        self._query = DrivenQuery(query, self._source, sinks, self._options)
        self.sinks, self.plan = self._query.sinks, self._query.plan
        self._options.limit.check(self.plan)
        for output in self.plan.outputs:
            output.check()
        self._recover()

    def process(self, *rows: Iterable[Record], carried: datetime | str | None = None) -> None:
        """Send rows and run one epoch over all that no epoch has read: these, and what a crash has left.

        Args:
            rows: Rows of each input: ``process([row, row])``, of a union ``process(left_rows, right_rows)``. Tuples,
                Rows or dicts; timestamps may be texts such as ``"2026-01-01 12:00:01"``. None for an empty batch.
            carried: The watermark that the source carries from now on, for the policy ``carried()``.
        """
        batch, directory = self._running("process").next_batch, self.checkpoint.directory
        self._source.send(rows)
        if carried is not None:
            self._source.carry(carried)
        self._source.plan(batch, directory)
        with self._epoch() as engine:
            engine.run_batch(self._query.batch(self._session, batch), batch)
            self._source.done(batch, directory)

    def advance(self, duration: Duration) -> None:
        """Let processing time pass without rows, and then run an epoch if policies, timeouts or early rows need one.

        They see the clock once, at the end. A policy that must be polled more often is given several shorter steps.
        """
        self._running("advance")
        self.clock.advance(parse_duration(duration, "advance", minimum=1))
        with self._epoch() as engine:
            engine.tick()

    def retire_substream(self, substream: str) -> None:
        """As ``query.retireSubstream``: stop waiting for a substream that will have no more rows."""
        self._running("retire_substream")
        with self._epoch() as engine:
            engine.join()
        self.engine.check_substream(substream)
        with self._epoch() as engine:
            engine.retire(substream)

    def close_windows(self) -> None:
        """End the input: emit what is still open, as the option ``closeWindowsAtEnd`` does."""
        if self._running("close_windows").is_held:
            message = "close_windows: with publishAfter the other query says up to where windows close. Switch first."
            raise AnalysisError(message)
        with self._epoch() as engine:
            engine.close_windows()

    def stop(self) -> None:
        """Stop in an orderly way, when the last epoch has been committed."""
        self._running("stop")
        with self._epoch() as engine:
            engine.settle(last=True)
        self._is_up = False

    def close(self) -> None:
        """Let go of the query in whatever state it is, without an orderly stop: its threads, and what executors hold.

        What it has committed can still be read. A second call does nothing; the fixture ``sparkjet_driver`` calls it.
        """
        self._is_up = False
        self.engine.close()

    @contextmanager
    def crash(self, at: EpochPhase) -> Iterator[None]:
        """Crash at the end of a phase of the epoch that is run inside the ``with``; then :meth:`restart`.

        No code of the engine can handle the crash, but its ``finally`` blocks do run: what only the death of a process
        leaves behind needs a process that is killed.

        Raises:
            AssertionError: No epoch came to the end of that phase.

        >>> import sparkjet as sj
        >>> driver = StreamDriver(
        ...     spark,
        ...     lambda rows: rows.withWatermark("ts", 0).groupBy(sj.window("ts", "10 seconds")).count(),
        ...     "ts timestamp",
        ... )
        >>> with driver.crash(at=sj.EpochPhase.PREPARE):
        ...     driver.process([("2026-01-01 12:00:01",), ("2026-01-01 12:00:10",)])
        >>> driver.restart()
        >>> driver.results()
        []
        >>> driver.process()
        >>> [row["count"] for row in driver.results()]
        [1]
        """
        self._running("crash")
        with self._crash_point.at(at, self.engine.join):
            yield
        self._is_up = False

    def restart(self) -> None:
        """Go on as a new driver, after a crash, a failure or a stop: recover from the store what the record names.

        Rows that no record has are read again by the next :meth:`process`. Sinks, store and clock stay the same.
        """
        try:
            # The end of an epoch may still run, beside the one that has crashed: it must not meet its successor.
            self.engine.join()
        except Exception:
            # That of a query that has failed already was to be expected.
            if self._is_up:
                raise
        # What a driver that dies leaves to nobody would stay in memory here.
        self.engine.close()
        for table in self.plan.tables:
            table.forget()
        self._recover()

    def results(self, output: int = 0) -> list[Row]:
        """Rows that an output has committed, in the order of the epochs.

        Args:
            output: Its position in what the query returns.
        """
        sink = self.sinks[output]
        if not isinstance(sink, CollectingSink):
            raise AnalysisError(f"results: output {output} goes into a {type(sink).__name__}. Read it there.")
        if self._is_up:
            self.engine.join()
        return sink.rows()

    def late_rows(self) -> list[Row]:
        """Rows that the windows have dropped, with ``_substream``, ``_watermark`` and ``_reason``."""
        dropped = {output.name for output in self.plan.of_stages if output.rows is Rows.LATE}
        late = [number for number, output in enumerate(self.plan.outputs) if output.name in dropped]
        if not late:
            raise AnalysisError("late_rows: the query does not return them. Let it return [result, result.lateRows].")
        return [row for number in late for row in self.results(number)]

    @property
    def late_counts(self) -> dict[str, int]:
        """Number of late rows by substream since the first start, over all windows."""
        return dict(self.engine.state.late)

    @property
    def watermark(self) -> datetime | None:
        """The query's watermark, as ``collect()`` gives timestamps; None if there is none yet."""
        reached = self.engine.state.tracker.watermark
        return None if reached == MIN else TimestampType().fromInternal(reached)

    def _recover(self) -> None:
        assert self._home is not None  # noqa: S101 - set when this was made
        if isinstance(self.store, DirectoryStore):
            self.store.open("directory")
        sinks = {output.name: output.sink for output in self.plan.outputs}
        for sink in sinks.values():
            if isinstance(sink, Outbox):
                sink.attach(self._home / "snapshots" / "outbox", self._session)
        before = self._options.publish_after
        context = EngineContext(
            plan=self.plan,
            guarantee=self._options.guarantee,
            partitions=self._options.partitions,
            overlap=self._options.overlap,
            session=self._session,
            store=self.store,
            log=RecordLog(self.store),
            committer=Committer(sinks),
            receivers=Receivers(self.store, identified=self._options.guarantee is Guarantee.EXACTLY_ONCE),
            clock=self.clock,
            listener=self._crash_point,
            on_change=self._options.on_change,
            limit=self._options.limit,
            publish_after=None if before is None else directory_at(before, "publishAfter", lambda: self._session),
        )
        context.configure(self._session)
        self._crash_point.restarted()
        self.engine: Engine
        self.checkpoint: SparkCheckpoint
        self.engine, self.checkpoint = recover(context, self._home / "spark")
        self._is_up = True
        next_batch = self.engine.next_batch
        self._source.rewind(next_batch)
        if next_batch > 0:
            # Spark runs the last batch again, whose commit no record has; the engine knows it and skips it.
            self.engine.run_batch(self._query.batch(self._session, next_batch - 1), next_batch - 1)

    def _running(self, method: str) -> Engine:
        if not self._is_up:
            raise AnalysisError(f"{method}: the query has crashed, failed or been stopped. Call restart() first.")
        return self.engine

    @contextmanager
    def _epoch(self) -> Iterator[Engine]:
        try:
            yield self.engine
        except BaseException:
            # As a query that has failed: its state is no longer that of its record.
            self._is_up = False
            raise


class CrashPoint:
    """A listener to the phases of epochs that crashes the query in one of them.

    Args:
        listener: Another listener, called first.
    """

    def __init__(self, listener: PhaseListener | None) -> None:
        self._listener = listener
        self._at: EpochPhase | None = None
        self._begun = self._after = 0

    def __call__(self, phase: EpochPhase, epoch: int) -> None:
        """Called by the engine at the end of each phase."""
        if self._listener is not None:
            self._listener(phase, epoch)
        self._begun = max(self._begun, epoch)
        if phase is self._at and epoch > self._after:
            raise _CrashError

    def restarted(self) -> None:
        """The query has been started again: epochs that no record has come once more."""
        self._begun = 0

    @contextmanager
    def at(self, phase: EpochPhase, join: Callable[[], None]) -> Iterator[None]:
        """Crash at the end of a phase in what is run inside the ``with`` block, and not in the end of an epoch before.

        Args:
            phase: The phase.
            join: Waits until the last epoch has ended, which may run alongside the last one started.

        Raises:
            AssertionError: No epoch reached the end of the phase.
        """
        self._at, self._after = phase, self._begun
        try:
            yield
            join()
        except _CrashError:
            return
        finally:
            self._at = None
        raise AssertionError(f"crash: no epoch came to the end of {phase}.")


class _CrashError(BaseException):
    """The death of the driver: not an Exception, so that neither retries nor error handlers survive it."""
