"""The launch of a checked query: recovery, then Spark's own query around our epochs."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sparkjet.api.interrupts import INTERRUPTS
from sparkjet.api.listener_events import ListenerEvents
from sparkjet.api.places import Places
from sparkjet.api.query import StreamingQuery
from sparkjet.api.worker_check import check_workers
from sparkjet.catalyst.physical_plans import own_session
from sparkjet.engine.adopting import continue_lists
from sparkjet.engine.backfilling import backfilling
from sparkjet.engine.batch_runner import BatchRunner
from sparkjet.engine.changed_results import check
from sparkjet.engine.committer import Committer
from sparkjet.engine.context import EngineContext
from sparkjet.engine.ending import Ending, taken_over
from sparkjet.engine.entry_point import EntryPoint
from sparkjet.engine.exporting import check_exported
from sparkjet.engine.on_change import OnChange
from sparkjet.engine.plain_logs import plain_logs
from sparkjet.engine.receivers import Receivers
from sparkjet.engine.recovery import recover
from sparkjet.engine.refilling import Refill
from sparkjet.engine.rerunning import Rerun, check_rerun, check_sources
from sparkjet.engine.start_steps import StartSteps
from sparkjet.engine.state_limit import StateLimit
from sparkjet.engine.supervisor import Supervisor
from sparkjet.engine.ticker import Ticker, tick_interval
from sparkjet.errors import AnalysisError
from sparkjet.executors import AwaitedExecutors, is_local, slots
from sparkjet.monitoring.feeding import Feed
from sparkjet.monitoring.runs import DRIVER, Run
from sparkjet.monitoring.spark_metrics import SparkGauges
from sparkjet.options import REFILL_FROM
from sparkjet.plan.spark_sources import guarantee_of_sources, read_in_one_batch
from sparkjet.plan.worker_packages import worker_packages
from sparkjet.query_log import about
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.protocol import Guarantee
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.spark_line import LINE
from sparkjet.storage.directory import HoldsRows
from sparkjet.storage.full_disk import full_disks_named
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.clock import Clock
    from sparkjet.engine.adopting import Adoption
    from sparkjet.engine.backfilling import Backfilling
    from sparkjet.engine.backup import Backup
    from sparkjet.engine.engine import Engine
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.engine.progress_report import ProgressReport
    from sparkjet.engine.replaying import ReplayRequest
    from sparkjet.engine.rerunning import RecordedEpochs
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory

RECENT = 100
"""The number of epochs in ``recentProgress``."""


class Reran(NamedTuple):
    """The result of a rerun: the number of epochs, the last of them, and the rows of each output."""

    epochs: int
    last: int
    rows: dict[str, int]


class _Recovered(NamedTuple):
    """A query at its newest record, and the receivers of its epochs' reports."""

    context: EngineContext
    engine: Engine
    checkpoint: SparkCheckpoint
    reports: deque[ProgressReport]
    events: ListenerEvents
    feed: Feed


@contextmanager
def _taken_over_named(engine: Engine) -> Iterator[None]:
    """Report that another driver has taken over, if something that it removed is missing before Spark's query runs."""
    try:
        yield
    except Exception as error:
        told = taken_over(error, engine.fenced)
        if told is error:
            raise
        raise told from error


@dataclass(frozen=True)
class Launch:
    """A checked query on its way to running; ``trigger`` has the arguments of Spark's ``trigger``."""

    plan: Plan
    home: Directory
    guarantee: Guarantee
    partitions: int
    overlap: bool
    trigger: Mapping[str, str | bool]
    close_at_end: bool
    name: str | None
    clock: Clock
    listener: PhaseListener
    has_own_home: bool = True
    """False if ``home`` is a new temporary directory, because none was given."""
    backup: Backup | None = None
    """Copies snapshots elsewhere."""
    pin_retention: int | None = None
    """How long pins stay, in microseconds; None for forever."""
    replay: ReplayRequest | None = None
    """Dead letters that pass through the query first."""
    on_change: OnChange = field(default_factory=OnChange)
    """Whether to continue from a record of the query before it was changed."""
    publish_after: Directory | None = None
    """The home of the query whose windows come before."""
    refill_from: str | None = None
    """The home of a fork whose state a changed query takes over."""
    adopt: Adoption | None = None
    """Spark's checkpoint after which it begins."""
    limit: StateLimit = field(default_factory=StateLimit)
    """The limits of each operator's state."""

    @cached_property
    def places(self) -> Places:
        """The places to which it writes."""
        return Places(self.plan, self.home, self.has_own_home)

    def start(self) -> StreamingQuery:
        """Check the destinations, recover and start; see :func:`sparkjet.start`."""
        steps = StartSteps()
        with full_disks_named(self.places.all), about(self.name or self.home), steps.told():
            return self._start(steps)

    def rerun(self, epochs: RecordedEpochs) -> Reran:
        """Check and recover like :meth:`start`, and run epochs recorded by another query; see :meth:`Fork.replay`."""
        steps, rows, done = StartSteps(), Counter[str](), 0
        with full_disks_named(self.places.all), about(self.name or self.home), steps.told():
            check_rerun(self.plan)
            newest = RecordLog(DirectoryStore(self.home.below("snapshots"))).newest()
            if newest is not None:
                # Before this start changes anything.
                check_sources(self.plan, newest[1])
                next(epochs.after(newest[1]), None)
            recovered = self._recover(steps, lambda report: rows.update(_rows_of(report)))
            engine = recovered.engine
            with ExitStack() as finish:
                finish.callback(engine.close)
                for table in self.plan.tables:
                    table.acquire()
                    finish.callback(table.release)
                checkpoint = recovered.checkpoint.directory
                rerun = Rerun(engine, self.plan, epochs, checkpoint, recovered.context.store)
                steps.at("replaying epochs", epochs.until - engine.record.epoch)
                with _taken_over_named(engine), engine.turn:
                    for _ in rerun.run():
                        steps.one()
                        done += 1
                    engine.settle(last=True)
        return Reran(done, engine.record.epoch, dict(rows))

    def _start(self, steps: StartSteps) -> StreamingQuery:
        found = self._recover(steps)
        if self.replay is not None:
            steps.at("replaying dead letters")
            try:
                with _taken_over_named(found.engine):
                    found.engine.replay(self.replay)
            except BaseException:
                found.engine.close()
                raise
        steps.at("looking at the history")
        try:
            with _taken_over_named(found.engine):
                history = backfilling(found.engine, self.plan.source, found.context.store)
        except BaseException:
            found.engine.close()
            raise
        steps.at("starting Spark's query")
        return self._run(
            found.context.receivers, found.engine, found.checkpoint, found.reports, found.events, found.feed, history
        )

    def _recover(self, steps: StartSteps, on_report: Callable[[ProgressReport], None] = lambda _: None) -> _Recovered:
        """Check the destinations, and recover; ``on_report`` is called after each epoch."""
        self._check_name()
        store = DirectoryStore(self.home.below("snapshots"))
        sinks = {output.name: output.sink for output in self.plan.outputs}
        formats = {output.name: output.format for output in self.plan.outputs}
        log, committer = RecordLog(store, self.pin_retention), Committer(sinks, formats=formats)
        steps.at("reading the newest record")
        newest = self._newest(log)
        if self.backup is not None:
            self.backup.begin(None if newest is None else newest[1])
        if self.adopt is not None:
            self._check_adoption(self.adopt, newest)
        if newest is not None:
            continue_lists(self.plan, self.home)
        if newest is not None:
            check_exported(self.home)
            # First: transactions that expire must not wait for the user to correct whatever the checks complain about.
            committer.settle_what_expires(newest[1])
        steps.at("checking where the rows go", len(self.plan.outputs))
        for output in self.plan.outputs:
            check(output, self.plan, None if newest is None else newest[1])
            steps.one()
        self.places.check_home()
        steps.at("checking the executors")
        self.places.check_platform()
        packages = self.home.packages if isinstance(self.home, HoldsRows) else {}
        check_workers(self.plan.source.sparkSession, {**worker_packages(self.plan), **packages})
        self.places.check_shared()
        store.open("checkpointLocation")
        session = own_session(self.plan.source.sparkSession)
        for sink in committer.sinks.values():
            if isinstance(sink, Outbox):
                sink.attach(self.home.below("snapshots").below("outbox"), session)
        reports: deque[ProgressReport] = deque(maxlen=RECENT)
        events = ListenerEvents(self.plan.source.sparkSession)
        # Only a home in a grid has this attribute.
        grid = getattr(self.home, "standing", None)
        run = Run("", "", self.name, time.time_ns() // 1000, grid=grid)
        feed = Feed(run, SparkGauges(self.plan.source.sparkSession, run), committer)

        def on_progress(report: ProgressReport) -> None:
            report = self._with_backup(report)
            reports.append(report)
            on_report(report)
            events.post(report)
            feed.post(report)
            if self.backup is not None:
                self.backup.after_epoch(report.epoch.number)

        context = EngineContext(
            plan=self.plan,
            guarantee=self.guarantee,
            partitions=self.partitions,
            overlap=self.overlap,
            session=session,
            store=store,
            log=log,
            committer=committer,
            receivers=Receivers(store, identified=self.guarantee is Guarantee.EXACTLY_ONCE),
            clock=self.clock,
            listener=self.listener,
            on_progress=on_progress,
            home=self.home,
            name=self.name,
            steps=steps,
            on_change=self.on_change,
            publish_after=self.publish_after,
            adopt=self.adopt,
            limit=self.limit,
            repeats=not self._runs_one_batch,
            refill=None if self.refill_from is None else partial(self._refill, self.refill_from),
        )
        context.configure(session)
        engine, checkpoint = recover(context, self.places.spark_directory)
        run.query = engine.record.query
        return _Recovered(context, engine, checkpoint, reports, events, feed)

    @property
    def _runs_one_batch(self) -> bool:
        """Whether a repeated batch may be the only one that Spark runs, so that no start would read anything new."""
        # Before 4.2, PySpark's wrapper of simple readers learns where it is from the batch that is repeated.
        return "availableNow" in self.trigger and LINE >= (4, 2) and read_in_one_batch(self.plan.source)

    def _check_adoption(self, adoption: Adoption, newest: tuple[int, Record] | None) -> None:
        if newest is None:
            adoption.check(self.plan)
        else:
            adoption.check_begun(newest[1].epoch)

    def _refill(self, place: str) -> Refill:
        session = self.plan.source.sparkSession
        return Refill.of(directory_at(place, REFILL_FROM.name, lambda: session), place)

    def _newest(self, log: RecordLog) -> tuple[int, Record] | None:
        """The newest record, read before anything else in the home: a store that does not answer is refused here."""
        try:
            return log.newest()
        except OSError as error:
            if self.home.path is not None:
                raise
            message = (
                f'checkpointLocation: "{self.home}" cannot be read: {error.strerror} Check the location, and the '
                "endpoint and credentials in Spark's settings (spark.hadoop.fs.…)."
            )
            raise AnalysisError(message) from error

    def _run(
        self,
        receivers: Receivers,
        engine: Engine,
        checkpoint: SparkCheckpoint,
        reports: deque[ProgressReport],
        events: ListenerEvents,
        feed: Feed,
        history: Backfilling | None = None,
    ) -> StreamingQuery:
        # Even if one of them fails, the others are called, the last one first.
        finish = ExitStack()
        finish.callback(self._report_backup, reports)
        if self.backup is not None:
            finish.callback(self.backup.finish)
        finish.callback(receivers.stop)
        finish.callback(engine.close)
        ending = Ending(engine.fenced, self.places.all, finish.close)
        finish.callback(lambda: feed.end(ending.failure))
        started: Future[SparkQuery] = Future()
        entry_point = EntryPoint(BatchRunner(engine, ending, started, history))
        finish.callback(entry_point.close)
        source = self.plan.source if history is None else history.source
        writer = source.writeStream.foreachBatch(entry_point)
        writer = writer.option("checkpointLocation", f"file:{checkpoint.directory}")
        if self.name is not None:
            writer = writer.queryName(self.name)
        if self.trigger:
            writer = writer.trigger(**self.trigger)  # type: ignore[arg-type]
        fenced = engine.fenced()
        if fenced is not None:
            # Spark ends a running query when one with the same id starts: that must not be our successor's.
            finish.close()
            raise fenced
        try:
            for table in self.plan.tables:
                table.acquire()
                finish.callback(table.release)
            with plain_logs(self.plan.source.sparkSession):
                spark = writer.start()
        except BaseException as error:
            finish.close()
            # A successor removes this run's checkpoint, which Spark is about to read.
            fenced = engine.fenced() if isinstance(error, Exception) else None
            if fenced is not None:
                raise fenced from error
            raise
        events.query = feed.spark = spark
        feed.run.run = spark.runId
        DRIVER.add(feed.run)
        started.set_result(spark)
        # With availableNow, the input decides when the query ends, not the clock.
        ticking = self.plan.uses_clock and "availableNow" not in self.trigger
        ticker = Ticker(tick_interval(self.trigger.get("processingTime"))) if ticking else None
        session = self.plan.source.sparkSession
        executors = None if is_local(session) else AwaitedExecutors(partial(slots, session))
        supervisor = Supervisor(
            engine,
            ending,
            spark,
            ticker=ticker,
            close_at_end=self.close_at_end,
            executors=executors,
            backfilling=history,
        )
        supervisor.start()
        INTERRUPTS.add(self.name or str(self.home), supervisor)
        return StreamingQuery(engine, supervisor, ending, spark, reports, self._guarantees)

    def _with_backup(self, report: ProgressReport) -> ProgressReport:
        return msgspec.structs.replace(report, backup=None if self.backup is None else self.backup.report)

    def _report_backup(self, reports: deque[ProgressReport]) -> None:
        # The last copy was not yet there when the last epoch ended.
        if reports:
            reports[-1] = self._with_backup(reports[-1])

    def _check_name(self) -> None:
        """Refuse the name of a running query: Spark does so only after its home and its table have been taken over."""
        running = () if self.name is None else self.plan.source.sparkSession.streams.active
        if any(each.name == self.name for each in running):
            message = (
                f'queryName: a query named "{self.name}" is running in this session. Stop it first, or give this one '
                "another name."
            )
            raise AnalysisError(message)

    @property
    def _guarantees(self) -> dict[str, str]:
        """The guarantee of each sink: its own promise, the query's or that of the sources, whichever is weakest."""
        order = list(Guarantee)
        sources = guarantee_of_sources(self.plan.source)
        return {
            output.name: max(self.guarantee, output.sink.guarantee, sources, key=order.index).value
            for output in self.plan.outputs
        }


def _rows_of(report: ProgressReport) -> dict[str, int]:
    """The rows that an epoch has added to each output, as far as their sinks count them."""
    number = report.epoch.number
    return {each.name: each.rows for each in report.sinks if each.rows is not None and each.epoch(number) == number}
