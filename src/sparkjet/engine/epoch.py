"""The epoch: from a micro-batch, a tick of the clock or the end of the input to committed sinks."""

from __future__ import annotations

from concurrent.futures import Executor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.caught_up import announced
from sparkjet.engine.partial_aggregation import InputBatch, aggregate
from sparkjet.engine.phases import Step
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.results import Results
from sparkjet.plan.plan import Rows
from sparkjet.sinks.protocol import Guarantee, TransactionId
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.engine.context import Parts, Work
    from sparkjet.engine.partial_aggregation import Aggregation
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.engine.state import QueryState
    from sparkjet.snapshots.record import Prepared, Record, SparkPosition


class Epoch:
    """One attempt at one epoch, on the driver.

    In this order: :meth:`aggregate`, :meth:`advance`, :meth:`prepare`, :meth:`decide`, :meth:`publish`. ``aggregate``
    reads nothing of the state but what windows have closed up to, so it may run beside the end of the epoch before,
    from its ``prepare`` on. Whoever runs them restores the state when one fails, and calls :meth:`release` in any case.
    """

    def __init__(
        self, parts: Parts, state: QueryState, checkpoint: SparkCheckpoint, work: Work, transaction: TransactionId
    ) -> None:
        self._parts = parts
        self._state = state
        self._checkpoint = checkpoint
        self._transaction = transaction
        self._aggregations: dict[str, Aggregation] = {}
        self._highest: dict[str, int] = {}
        self._results = Results(parts.plan, state)
        self._judged_by: int | None = None
        self._position: SparkPosition | None = None
        self._prepared: list[Prepared] = []
        self._opened: list[TransactionId] = []
        self.work = work
        self.progress = EpochProgress(epoch=transaction.epoch, batch=work.batch_id)

    def aggregate(self) -> None:
        """Stage 1 of every window that reads the input, and what each substream has come to; changes nothing."""
        self._reached(Step.BEGIN)
        if self.work.batch is None:
            return
        plan = self._parts.plan
        with self.progress.timed("aggregate"):
            arrived = InputBatch(self.work.batch, plan)
            try:
                for name in plan.roots:
                    stage, operator = plan.stages[name], self._state.stages[name].operator
                    keep = plan.delivers_late_rows(name)
                    rows = arrived.rows(stage)
                    self._aggregations[name] = aggregate(rows, stage, operator, plan.seen, keep_rows=keep)
                self._highest = arrived.highest(self._aggregations.values())
            finally:
                arrived.release()

    def advance(self, record: Record) -> None:
        """Move state and watermark on, in memory only.

        Args:
            record: That of the epoch before.
        """
        tracker, work = self._state.tracker, self.work
        self._judged_by = None if tracker.watermark == MIN else tracker.watermark
        for name in list(self._aggregations):
            self._results.accept(name, self._aggregations.pop(name))
        self.progress.count(self._results.outcomes.values())
        if work.batch_id is not None and any(each.watermark.partitions for each in self._parts.plan.inputs):
            # Before the watermark moves: a partition without rows yet would find its first ones late.
            for substream in announced(self._parts.plan.inputs, self._checkpoint.end_offsets(work.batch_id)):
                tracker.add(substream, work.now)
        for substream, timestamp in self._highest.items():
            tracker.report(substream, timestamp, work.now)
        self._reached(Step.AGGREGATED)
        with self.progress.timed("windows"):
            if work.kind == "closing":
                self._results.close_all()
            else:
                tracker.advance(work.now, work.caught_up)
                self._results.close(tracker.watermark)
        self._position = record.spark
        if work.batch_id is not None:
            # Now: Spark may have written more by the time of the record.
            prefix = f"{record.takeover:06d}-{self.progress.epoch:09d}"
            self._position = self._checkpoint.capture(work.batch_id, record.spark, self._parts.store, prefix)

    @property
    def name(self) -> str:
        """What this attempt calls the things that it stores."""
        return str(self._transaction)

    @property
    def attempt(self) -> int:
        """How often the epoch was begun before in this process."""
        return self._transaction.attempt

    def prepare(self, beside: Executor) -> None:
        """Save the state and prepare every sink; what was prepared is undone if any of it fails.

        Args:
            beside: For what can be done at the same time.

        Raises:
            SinkError: If a prepared transaction may not live until its commit, or rows were refused.
        """
        with self.progress.timed("settle"):
            self._parts.outputs.attempt()
        saving = beside.submit(self._save)
        try:
            try:
                with self.progress.timed("prepare"):
                    self._prepared = self._transactions()
            finally:
                # What it reads is released next, whether or not the sinks have failed.
                wait([saving])
            saving.result()
            self._reached(Step.SAVED)
            self._reached(Step.PREPARED)
            self._parts.outputs.check_alive(self._prepared)
        except BaseException:
            # Not in decide(): a put that fails may have decided all the same.
            self._parts.outputs.abort(self._opened)
            raise

    def decide(self, slot: int, before: Record) -> Record:
        """Write the record into its slot.

        At least once, it names the transactions too. Published before it, rows would have the number of an epoch that
        may be run again with more input, and whatever knows that number would drop the new ones.

        Raises:
            FencedError: If another driver has taken over; nothing was decided.
        """
        outputs = self._parts.outputs
        decided = [] if self._parts.guarantee is Guarantee.NONE else self._prepared
        with self.progress.timed("record"):
            record = self._state.saved_into(
                msgspec.structs.replace(
                    before,
                    kind=self.work.kind,
                    epoch=self.progress.epoch,
                    clock=self.work.now,
                    spark=self._position,
                    # What is still to be committed must be named by the newest record: only that one is read again.
                    transactions=[*outputs.unsettled, *decided],
                    published=outputs.published(before, decided),
                    # Not at the takeover: its predecessor's checkpoint may be looked at once more.
                    overlap=self._parts.overlap,
                )
            )
            self._parts.log.append(slot, record)
        return record

    def publish(self, before: Record, record: Record) -> None:
        """Commit what was decided and remove what ``record`` does not name any more."""
        self._reached(Step.DECIDED)
        self._commit()
        self._reached(Step.COMMITTED)
        with self.progress.timed("clean"):
            # Here: after the last step Spark may have interrupted the thread, and a call to the JVM would fail.
            self.release()
            self._state.release()
            obsolete = before.names() | self._state.take_obsolete()
            for name in sorted(obsolete - record.names()):
                self._parts.store.remove(name)
        self._reached(Step.CLEANED)

    def release(self) -> None:
        """Let go of everything that was held in memory for this epoch; a second call does nothing."""
        for outcome in self._aggregations.values():
            outcome.release()
        self._results.release()

    def _save(self) -> None:
        """Write the state delta, beside the sinks: neither reads what the other writes."""
        with self.progress.timed("save"):
            for name, stage in self._state.stages.items():
                stage.save(f"{self.name}-{name}", self._parts.store)

    def _transactions(self) -> list[Prepared]:
        early = self._state.early_due(self._parts.plan, self.work.now, batch=self.work.batch is not None)
        prepared: list[Prepared] = []
        for output in self._parts.plan.outputs:
            if output.rows is Rows.LATE:
                rows = self._results.late_rows(output, self._judged_by)
            else:
                rows = self._results.rows(output, early=output.name in early)
            if rows is not None:
                transaction = replace(self._transaction, sink=output.name)
                self._opened.append(transaction)
                prepared += self._parts.outputs.prepare(output.name, rows, transaction)
        self._state.early_at |= dict.fromkeys(early, self.work.now)
        return prepared

    def _commit(self) -> None:
        with self.progress.timed("commit"):
            self._parts.outputs.decided(self._prepared)
            self._prepared = []
            self._parts.outputs.attempt(lambda: self._reached(Step.COMMITTING))

    def _reached(self, step: Step) -> None:
        self._parts.listener(step, self.progress.epoch)
