"""The engine: the epochs of one query, one after the other, or each in parallel with the end of the previous one."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.catalyst.logical_plans import analyzed
from sparkjet.catalyst.physical_plans import as_frame
from sparkjet.clock import SystemClock
from sparkjet.engine.caught_up import caught_up_by
from sparkjet.engine.changed_windows import shown
from sparkjet.engine.context import CaughtUp, EngineContext, EpochRequest
from sparkjet.engine.epoch import Epoch
from sparkjet.engine.map_reads import MapReads
from sparkjet.engine.sharing import Share, Sharing
from sparkjet.engine.spark_checkpoint import same_offsets
from sparkjet.engine.turn import Turn
from sparkjet.errors import FencedError, RecoveryError
from sparkjet.executors import Executors
from sparkjet.java import is_stopped
from sparkjet.query_log import logger, within
from sparkjet.sinks.copies import run_name
from sparkjet.sinks.protocol import TransactionId
from sparkjet.snapshots.record import EpochKind
from sparkjet.state.partitions import LOST
from sparkjet.time import MAX, MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.clock import SteadyClock
    from sparkjet.engine.replaying import ReplayRequest
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.engine.state import QueryState
    from sparkjet.plan.inputs import Input
    from sparkjet.snapshots.pins import Pin
    from sparkjet.snapshots.record import History, Record
    from sparkjet.time import InputsState


ATTEMPTS = 3
IDLE = 3_600_000_000
"""Microseconds without an epoch after which a record says that everything is settled."""


@dataclass(frozen=True)
class _EndingEpoch:
    """An epoch whose end runs in parallel with what comes next, and the policies as they were before it."""

    epoch: Epoch
    tracked: InputsState
    end: Future[None]


class _SwitchedError(Exception):
    """The slot of an epoch has the record by which the query was switched: the epoch continues from that record."""


class Engine:
    """Runs the epochs of one query on the driver.

    Recovery builds it with the record from which it continues. Not thread-safe: its callers take :attr:`turn`.

    With ``overlap`` (the option ``overlapEpochs``), :meth:`run_batch` returns when the epoch has been aggregated and
    its watermark is known: Spark then plans the next batch, and its partial aggregation runs, while this epoch is
    saved, prepared, decided and committed. At most one epoch is undecided when the next one advances the state.
    Everything else waits for the end first (:meth:`join`).
    """

    def __init__(
        self,
        context: EngineContext,
        slot: int,
        record: Record,
        state: QueryState,
        checkpoint: SparkCheckpoint,
        clock: SteadyClock,
    ) -> None:
        self._context = context
        self._processing_time = clock
        self._slot = slot
        self._checkpoint = checkpoint
        self._clock = record.clock
        self._since = record.epoch
        self._batch = None if record.spark is None else record.spark.batch
        self._ending: _EndingEpoch | None = None
        self._executors = Executors(context.session)
        self._maps = MapReads(context.plan.tables)
        self._sharing = Sharing(context.plan, context.publish_after)
        self._share = Share()
        self.turn = Turn(context.label, context.session)
        self._beside = ThreadPoolExecutor(2, thread_name_prefix="sparkjet-epoch", initializer=self.turn.enlist)
        self.record = record
        self.state = state

    @property
    def inputs(self) -> Sequence[Input]:
        """The inputs of the query."""
        return self._context.plan.inputs

    @property
    def session(self) -> SparkSession:
        """The session in which the epochs are computed."""
        return self._context.session

    @property
    def next_batch(self) -> int:
        """Spark's number for the next batch."""
        return 0 if self._batch is None else self._batch + 1

    def run_batch(self, batch: DataFrame, batch_id: int, caught_up: CaughtUp | None = None) -> None:
        """Run one of Spark's micro-batches as one epoch; the body of ``foreachBatch``.

        A batch that is already in the record is skipped, if it ends at the same offsets.
        """
        recorded = self.record.spark
        again = recorded is not None and batch_id == self._batch == recorded.batch
        if recorded is not None and again and same_offsets(recorded, self._checkpoint):
            return
        if batch_id != self.next_batch:
            message = (
                f"Spark runs batch {batch_id} of {self._checkpoint.directory}, but after the newest record batch "
                f"{self.next_batch} comes next. Start the query again: its checkpoint is rebuilt from the record."
            )
            raise RecoveryError(message)
        self._context.configure(batch.sparkSession)
        self._run(EpochRequest(EpochKind.BATCH, self._now(), batch, batch_id, caught_up), overlap=self._context.overlap)
        self._batch = batch_id

    def tick(self, caught_up: CaughtUp | None = None) -> None:
        """Let time pass on a quiet stream: an epoch without a batch, if the clock makes one due.

        The policies are polled in either case, as some of them require it; but not in parallel with the end of an
        epoch, which has just polled them.
        """
        self.join(wait=False)
        if self._ending is not None:
            # Waiting would delay the partial aggregation of the next batch.
            return
        now, tracker = self._now(), self.state.tracker
        before = tracker.snapshot()
        moved = tracker.advance(now, caught_up).watermark is not None
        is_due = moved or self.state.early_due(self._context.plan, now) or self.state.is_due(now)
        if is_due or self._context.committer.due(now) or self._is_to_tell(now):
            tracker.restore(before)
            self._run(EpochRequest(EpochKind.TICK, now, caught_up=caught_up))

    def check_substream(self, substream: str) -> None:
        """Refuse the name of a substream that does not and did not exist; nothing has changed."""
        self.state.tracker.check_known(substream)

    def retire(self, substream: str) -> None:
        """Stop waiting for a substream that will have no more data, and record that."""
        self.join()
        now = self._now()
        self.state.tracker.retire(substream, now)
        self._run(EpochRequest(EpochKind.TICK, now))

    def close_windows(self) -> None:
        """Emit whatever is still open, if anything is, as a separate epoch without a batch."""
        self.join()
        if any(stage.is_open for stage in self.state.stages.values()):
            self._run(EpochRequest(EpochKind.CLOSING, self._now()))

    def repeat(self, request: EpochRequest) -> None:
        """Run once more an epoch that another query has recorded (``request.again``), in place of one of Spark's."""
        self._run(request, overlap=self._context.overlap)
        if request.batch_id is not None:
            self._batch = request.batch_id

    def run_history(self, batch: Callable[[str, int], DataFrame], after: History) -> None:
        """Run a bucket of history as an epoch; ``batch`` is called with the epoch's name and its processing time."""
        self.join()
        now = self._now()
        self._context.configure(self._context.session)
        rows = batch(f"{self.record.query}/{self.record.epoch + 1}", now)
        self._run(EpochRequest(EpochKind.TICK, now, rows, history=after))

    def replay(self, request: ReplayRequest) -> None:
        """Pass dead letters through the query, as a separate epoch; before Spark's query starts."""
        # Not the plan with which it was made: this one knows which rows aggregates lack.
        query = replace(request.replaying, plan=self._context.plan)
        replay = replace(request, replaying=query).replay(self.record)
        if replay is not None:
            self._context.configure(self._context.session)
            batch = as_frame(self._context.session, analyzed(replay.letters))
            self._run(EpochRequest(EpochKind.TICK, self._now(), batch, replay=replay))

    def join(self, *, wait: bool = True) -> None:
        """Wait until the last epoch has ended; its failure is raised here.

        State that was lost with an executor is restored, and the epoch is run again.
        """
        ending = self._ending
        if ending is None or not (wait or ending.end.done()):
            return
        self._ending = None
        try:
            ending.end.result()
        except Exception as error:
            if not self._may_restore(ending.epoch, error):
                raise
            self._forget_tables()
            self._restore(ending.epoch, ending.tracked, error, whole=ending.epoch.attempt > 0)
            # Not 1: this may have been a second attempt, and names of attempts are used only once.
            self._run(ending.epoch.request, attempt=ending.epoch.attempt + 1)

    def settle(self, *, last: bool) -> None:
        """Raise the failure of the last epoch, and try again to commit decided transactions."""
        self.join(wait=last)
        if last:
            if not is_stopped(self._context.session.sparkContext):
                # By the clock of the last epoch, as below.
                self.release(now=self._clock)
            self._tell_last()
            self._context.committer.settle()
            self._record_settled()
        elif self._ending is None:
            followed = self._context.log.followed(self._slot, self.record)
            if isinstance(followed, FencedError):
                raise followed
            self._go_on_from(followed)
            if self._context.committer.unsettled:
                self._context.committer.attempt(clock=self._now())
            elif self._idle_for(self._now()) > IDLE:
                self._record_settled()

    def release(self, caught_up: CaughtUp | None = None, *, now: int | None = None) -> None:
        """Publish held windows, as a separate epoch, if it has been decided since that they are this query's."""
        if self._ending is None and self.is_held and self._sharing.is_released(self.record):
            self._run(EpochRequest(EpochKind.TICK, self._now() if now is None else now, caught_up=caught_up))

    @property
    def is_held(self) -> bool:
        """Whether the query does not publish anything yet, as it waits for another one."""
        return self.record.is_held

    @property
    def is_over(self) -> bool:
        """Whether the query has published everything that it had to when it was switched to another one."""
        return self._sharing.is_over(self.record)

    def publish(self) -> None:
        """Commit also the transactions that wait for more epochs."""
        self._context.committer.attempt(whole=True)

    def caught_up(self, newest: dict[str, Any] | None, *, in_batch: bool) -> CaughtUp:
        """Whether substreams have been read to their end, by Spark's newest progress; hardly known before the first."""
        if newest is None:
            return self._context.alignment.unread
        position = self.record.spark
        between = not in_batch and position is not None and newest["batchId"] >= position.batch
        answers = caught_up_by(self.inputs, newest, self.state.tracker.progress(), between_batches=between)
        return {**answers, **self._context.alignment.unread}

    def refuse(self, batch_id: int) -> None:
        """Note that a batch is left to the next run, although Spark may mark it as done."""
        self._checkpoint.refuse(batch_id)

    def pin(self, name: str) -> Pin:
        """Keep the newest record under a name."""
        # Not by the query's clock: it may be the caller.
        return self._context.log.pins.put(name, SystemClock().now())

    def fenced(self) -> FencedError | None:
        """The error to end with if another driver has taken over, None if none has."""
        return self._context.log.fenced(self._slot, self.record)

    def close(self) -> None:
        """End the threads and free the state that executors hold; a second call does nothing.

        Called when nothing of the query is running: its handle may be kept for a long time.
        """
        self._beside.shutdown()
        self._maps.close()
        self._context.alignment.close()
        # A context that was stopped has already freed it.
        if not is_stopped(self._context.session.sparkContext):
            self.state.close()

    def _tell_last(self) -> None:
        """Tell readers what no epoch of this run would tell: they would have to wait for the next run.

        By the clock of the last epoch, so that time closes nothing: with availableNow, only the input decides.
        """
        if self._is_to_tell(MAX) and not is_stopped(self._context.session.sparkContext):
            self._run(EpochRequest(EpochKind.TICK, self._clock, is_last=True))

    def _is_to_tell(self, now: int) -> bool:
        """Whether a sink has not yet told its readers about the watermark, as it was too early then."""
        plan, watermark = self._context.plan, self._share.closing(self.state.tracker.watermark)
        return watermark != MIN and any(
            self._context.committer.is_to_tell(output.name, now, plan.watermark_of(output, watermark))
            for output in plan.outputs
        )

    def _record_settled(self) -> None:
        """Record that everything is committed: sinks may forget it, and the next start may have other outputs."""
        if self.record.transactions and not self._context.committer.unsettled:
            self._append(kind=EpochKind.SETTLED, transactions=[])

    def _append(self, **changes: Any) -> None:
        """Record something other than an epoch."""
        record = msgspec.structs.replace(self.record, **changes)
        try:
            self._context.log.append(self._slot + 1, record)
        except FencedError:
            if not self._go_on_from(self._context.log.switched(self._slot, self.record)):
                raise
            self._append(**changes)
        else:
            self._slot += 1
            self.record = record

    def _go_on_from(self, switched: Record | None) -> bool:
        """Continue from the record by which another process has switched this query, if there is one."""
        if switched is None or switched.until is None or switched.until.at is None:
            return False
        self._slot += 1
        self.record = switched
        logger.info(
            "switched: windows that end after %s are query %s's", shown(switched.until.at), switched.until.query
        )
        return True

    def _run(self, request: EpochRequest, *, overlap: bool = False, attempt: int = 0) -> None:
        self._choose_maps()
        tracked: InputsState | None = None
        while True:
            epoch = self._epoch(request, attempt)
            with within(epoch.progress.epoch):
                try:
                    lost = self._executors.lost()
                    if lost:
                        self._forget_tables(lost=True)
                    epoch.aggregate()
                    if request.replay is not None:
                        request.replay.check(epoch.late)
                    self.join()
                    # Not the record's: the policies may have been polled since, and must get nothing twice.
                    tracked = tracked or self.state.tracker.snapshot()
                    if (self._executors.lost() or lost) and self.state.has_lost:
                        # Now: a job that needs it would fail four times first.
                        self._restore(epoch, tracked)
                    self._share = self._sharing.of(self.record)
                    epoch.advance(self.record, self._share)
                    if not overlap:
                        self._finish(epoch)
                except Exception as error:
                    epoch.release()
                    # If an earlier epoch cannot end, that is final: the rows that it has read must not be skipped.
                    self.join()
                    # A query is switched only once: that does not count as one of the attempts.
                    is_last = attempt >= ATTEMPTS - 1 and not isinstance(error, _SwitchedError)
                    if is_last or not self._may_restore(epoch, error):
                        raise
                    self._forget_tables()
                    # Spark has not noticed what a second attempt lacks.
                    self._restore(epoch, tracked or self.state.tracker.snapshot(), error, whole=attempt > 0)
                    attempt += 1
                else:
                    break
        self._clock = request.now
        if overlap:
            self._ending = _EndingEpoch(epoch, tracked, self._beside.submit(self._finish, epoch))

    def _choose_maps(self) -> None:
        """Let the record say which versions of maps the next epoch reads, before any of it is computed."""
        if not self._maps:
            return
        # Partial aggregation may read them: it cannot run in parallel with an undecided epoch.
        self.join()
        chosen = self._maps.chosen(self.record.epoch + 1, self.record.maps)
        if chosen != self.record.maps:
            self._append(maps=chosen)

    def _epoch(self, request: EpochRequest, attempt: int) -> Epoch:
        # Not the record's number plus two: the epoch that is ending may already be in the record.
        before = self.record.epoch if self._ending is None else self._ending.epoch.progress.epoch
        record = self.record
        transaction = TransactionId(
            record.query, "", record.takeover, before + 1, attempt, run_name(record.run), self._since
        )
        context = self._context if request.replay is None else replace(self._context, plan=request.replay.plan)
        return Epoch(context, self.state, self._checkpoint, request, transaction, self._maps.fixed)

    def _finish(self, epoch: Epoch) -> None:
        with within(epoch.progress.epoch):
            try:
                epoch.prepare(self._beside)
                before = self.record
                try:
                    self.record = epoch.decide(self._slot + 1, before)
                except FencedError as error:
                    if not self._go_on_from(self._context.log.switched(self._slot, before)):
                        raise
                    epoch.abandon()
                    raise _SwitchedError from error
                self._slot += 1
                epoch.publish(before, self.record)
            finally:
                epoch.release()
            # Now: state and record are those of this epoch.
            self._context.on_progress(epoch.progress.report(self.record, self.state))

    def _may_restore(self, epoch: Epoch, error: Exception) -> bool:
        """Whether state was lost with an executor, or the query was switched, and its epoch is not decided."""
        is_undone = isinstance(error, _SwitchedError) or LOST in str(error)
        return is_undone and self.record.epoch + 1 == epoch.progress.epoch

    def _restore(
        self, epoch: Epoch, tracked: InputsState, error: Exception | None = None, *, whole: bool = False
    ) -> None:
        is_switched = isinstance(error, _SwitchedError)
        what = "state is from before the switch" if is_switched else "state was lost with an executor"
        level = logging.INFO if is_switched else logging.WARNING
        logger.log(level, "epoch %d: %s, restoring it", epoch.progress.epoch, what)
        context, name = self._context, f"{epoch.name}-moved"
        deltas = sum(len(stage.deltas) for stage in self.record.stages.values())
        context.steps.at(f"restoring what is there: {what}", deltas)
        with context.steps.told():
            read, kept = self.state.restore(
                self.record, context.session, context.store, name, whole=whole, loaded=context.steps.one
            )
        # After restoring: before that, it would try to compute the lost state.
        self.state.release()
        self.state.tracker.restore(tracked)
        number = epoch.progress.epoch
        logger.log(level, "epoch %d: %d of %d partitions of the state were read again", number, read, read + kept)

    def _forget_tables(self, *, lost: bool = False) -> None:
        for table in self._context.plan.tables:
            # The table may be what was lost.
            if not lost or table.has_lost:
                table.forget()

    def _idle_for(self, now: int) -> int:
        # If the clock ran ahead and was set back, the idle time would be negative until the clock had caught up.
        self._clock = min(self._clock, now)
        return now - self._clock

    def _now(self) -> int:
        return self._processing_time.now()
