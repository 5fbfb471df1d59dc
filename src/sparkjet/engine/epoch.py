"""The epoch: from a micro-batch, a tick of the clock or the end of the input to committed sinks."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.aggregation import InputBatch, aggregate
from sparkjet.engine.parts import CaughtUp, Parts, Work, configure
from sparkjet.engine.plan import Rows
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.results import Results
from sparkjet.engine.spark_checkpoint import same_offsets
from sparkjet.engine.steps import Step
from sparkjet.errors import RecoveryError
from sparkjet.sinks.protocol import Guarantee, TransactionId
from sparkjet.time import MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.record import Prepared, Record
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.engine.state import QueryState
    from sparkjet.errors import FencedError

logger = logging.getLogger("sparkjet")

ATTEMPTS = 3
LOST_STATE = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


class Engine:
    """Runs the epochs of one query on the driver, one at a time.

    Recovery builds it with the record it goes on from. Not thread-safe: the query's handle holds a lock.
    """

    def __init__(self, parts: Parts, slot: int, record: Record, state: QueryState, checkpoint: SparkCheckpoint) -> None:
        self._parts = parts
        self._slot = slot
        self._checkpoint = checkpoint
        self.record = record
        self.state = state
        self.progress = EpochProgress(epoch=record.epoch)

    def run_batch(self, batch: DataFrame, batch_id: int, caught_up: CaughtUp | None = None) -> bool:
        """Run a micro-batch of Spark's as one epoch; the body of ``foreachBatch``.

        A batch that is in the record already is skipped, if it ends at the same offsets: the answer is then False.

        Raises:
            RecoveryError: If Spark's batch is not the one that follows the record.
            FencedError: If another driver has taken over.
        """
        recorded = self.record.spark
        if recorded is not None and batch_id == recorded.batch and same_offsets(recorded, self._checkpoint):
            return False
        expected = 0 if recorded is None else recorded.batch + 1
        if batch_id != expected:
            message = (
                f"Spark runs batch {batch_id} of {self._checkpoint.directory}, but after the newest record batch "
                f"{expected} comes next. Start the query again: its checkpoint is rebuilt from the record."
            )
            raise RecoveryError(message)
        configure(batch.sparkSession, self._parts.partitions)
        self._run(Work("epoch", self._now(), batch, batch_id, caught_up))
        return True

    def tick(self, caught_up: CaughtUp | None = None) -> bool:
        """Let the clock do what it does on a quiet stream, as an epoch without a batch; False if nothing is due.

        The policies are polled in either case, as some of them need to be.
        """
        now, tracker = self._now(), self.state.tracker
        before = tracker.snapshot()
        moved = tracker.advance(now, caught_up).watermark is not None
        if not moved and not self._early_due(now, batch=False):
            return False
        tracker.restore(before)
        self._run(Work("tick", now, caught_up=caught_up))
        return True

    def retire(self, substream: str) -> None:
        """Stop waiting for a substream that will have no more data, and record that.

        Raises:
            AnalysisError: There is no such substream.
        """
        now = self._now()
        self.state.tracker.retire(substream, now)
        self._run(Work("tick", now))

    def close_windows(self) -> bool:
        """Emit what is still open, as an epoch of its own without a batch; False if nothing is open."""
        if not any(stage.is_open for stage in self.state.stages.values()):
            return False
        self._run(Work("closing", self._now()))
        return True

    def settle(self, *, last: bool) -> None:
        """Try again to commit what is decided, between two epochs or for the last time.

        Raises:
            UnsettledError: If the last try fails; the next start tries again.
        """
        if last:
            self._parts.outputs.settle()
        elif self._parts.outputs.unsettled:
            self._parts.outputs.attempt()

    def fenced(self) -> FencedError | None:
        """The error to end with if another driver has taken over, None if none has."""
        return self._parts.log.fenced(self._slot, self.record)

    def _run(self, work: Work) -> None:
        tracked = self.state.tracker.snapshot()
        for attempt in range(ATTEMPTS):
            try:
                self._epoch(work, attempt)
            except Exception as error:
                undecided = self.record.epoch < self.progress.epoch
                if LOST_STATE not in str(error) or not undecided or attempt == ATTEMPTS - 1:
                    raise
                logger.warning("epoch %d: state was lost with an executor, restoring it", self.progress.epoch)
                self.state.release()
                name = f"{self._transaction(attempt)}-moved"
                self.state.restore(self.record, self._parts.session, self._parts.store, name)
                # Not the record's: the policies may have been polled since, and must not hear of anything twice.
                self.state.tracker.restore(tracked)
            else:
                return

    def _epoch(self, work: Work, attempt: int) -> None:
        parts, tracker = self._parts, self.state.tracker
        progress = self.progress = EpochProgress(epoch=self.record.epoch + 1, batch=work.batch_id)
        transaction = self._transaction(attempt)
        self._reached(Step.BEGIN)
        with progress.timed("settle"):
            parts.outputs.attempt()
        judged_by = None if tracker.watermark == MIN else tracker.watermark
        results = Results(parts.plan, self.state)
        try:
            if work.batch is not None:
                with progress.timed("aggregate"):
                    self._aggregate(work.batch, work.now, results)
            self._reached(Step.AGGREGATED)
            with progress.timed("windows"):
                if work.kind == "closing":
                    results.close_all()
                else:
                    tracker.advance(work.now, work.caught_up)
                    results.close(tracker.watermark)
            with progress.timed("save"):
                for name, stage in self.state.stages.items():
                    stage.save(f"{transaction}-{name}", parts.store)
            self._reached(Step.SAVED)
            with progress.timed("prepare"):
                early = self._early_due(work.now, batch=work.batch is not None)
                prepared = self._prepare(results, early, transaction, judged_by)
                self.state.early_at |= dict.fromkeys(early, work.now)
            self._reached(Step.PREPARED)
        finally:
            results.release()
        self._decide(prepared, work)

    def _aggregate(self, batch: DataFrame, now: int, results: Results) -> None:
        """Stage 1 of every window that reads the input, and what each substream has come to."""
        plan = self._parts.plan
        arrived = InputBatch(batch, plan)
        try:
            for name in plan.roots:
                stage, operator = plan.stages[name], self.state.stages[name].operator
                keep = plan.delivers_late_rows(name)
                results.accept(name, aggregate(arrived.rows(stage), stage, operator, plan.seen, keep_rows=keep))
            for substream, timestamp in arrived.highest(results.outcomes.values()).items():
                self.state.tracker.report(substream, timestamp, now)
        finally:
            arrived.release()
        self.progress.count(results.outcomes.values())

    def _early_due(self, now: int, *, batch: bool) -> list[str]:
        """Names of the outputs that early rows are due for."""
        due = []
        for output in self._parts.plan.outputs:
            period = output.early_period
            if period is None:
                continue
            since = now - self.state.early_at.setdefault(output.name, now)
            stage = next(
                state for name, state in self.state.stages.items() if self._parts.plan.stages[name] is output.stage
            )
            if stage.is_open and (batch if period == 0 else since >= period):
                due.append(output.name)
        return due

    def _prepare(
        self, results: Results, early: list[str], transaction: TransactionId, judged_by: int | None
    ) -> list[Prepared]:
        prepared: list[Prepared] = []
        for output in self._parts.plan.outputs:
            if output.rows is Rows.LATE:
                rows = results.late_rows(output, judged_by)
            else:
                rows = results.rows(output, early=output.name in early)
            if rows is not None:
                prepared += self._parts.outputs.prepare(output.name, rows, replace(transaction, sink=output.name))
        return prepared

    def _decide(self, prepared: list[Prepared], work: Work) -> None:
        """Record, commit and clean up; a sink that promises less is committed before the record or not recorded."""
        parts, progress = self._parts, self.progress
        if parts.guarantee is Guarantee.AT_LEAST_ONCE:
            parts.outputs.decided(prepared)
            parts.outputs.settle()
            prepared = []
        recorded = prepared if parts.guarantee is Guarantee.EXACTLY_ONCE else []
        with progress.timed("record"):
            # What is still to be committed must be named by the newest record: only that one is read again.
            record = self._next_record([*parts.outputs.unsettled, *recorded], work)
            parts.log.append(self._slot + 1, record)
        obsolete = self.record.names() - record.names()
        self._slot, self.record = self._slot + 1, record
        self._reached(Step.DECIDED)
        self._commit(prepared)
        self._reached(Step.COMMITTED)
        with progress.timed("clean"):
            self.state.release()
            for name in sorted(obsolete | (self.state.take_obsolete() - record.names())):
                parts.store.remove(name)
        self._reached(Step.CLEANED)

    def _commit(self, prepared: list[Prepared]) -> None:
        with self.progress.timed("commit"):
            self._parts.outputs.decided(prepared)
            self._parts.outputs.attempt(lambda: self._reached(Step.COMMITTING))

    def _next_record(self, transactions: list[Prepared], work: Work) -> Record:
        position = self.record.spark
        if work.batch_id is not None:
            prefix = f"{self.record.takeover:06d}-{self.progress.epoch:09d}"
            position = self._checkpoint.capture(work.batch_id, position, self._parts.store, prefix)
        record = msgspec.structs.replace(
            self.record,
            kind=work.kind,
            epoch=self.progress.epoch,
            clock=work.now,
            spark=position,
            transactions=transactions,
        )
        return self.state.saved_into(record)

    def _now(self) -> int:
        # A machine whose clock was set back must not take time back from the policies.
        return max(self._parts.clock.now(), self.record.clock)

    def _transaction(self, attempt: int) -> TransactionId:
        return TransactionId(self.record.query, "", self.record.takeover, self.record.epoch + 1, attempt)

    def _reached(self, step: Step) -> None:
        self._parts.listener(step, self.progress.epoch)
