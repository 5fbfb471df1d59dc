"""The epoch: one micro-batch from Spark's offsets to committed sinks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkjet.engine.aggregation import Aggregation, aggregate
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.record import Record
from sparkjet.engine.spark_checkpoint import same_offsets
from sparkjet.engine.steps import Step
from sparkjet.errors import RecoveryError
from sparkjet.sinks.protocol import Guarantee, TransactionId
from sparkjet.time import MIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.clock import Clock
    from sparkjet.engine.log import RecordLog
    from sparkjet.engine.outputs import Outputs
    from sparkjet.engine.pipeline import Pipeline
    from sparkjet.engine.record import Prepared
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.engine.state import QueryState
    from sparkjet.engine.steps import StepListener
    from sparkjet.errors import FencedError
    from sparkjet.snapshots import SnapshotStore

logger = logging.getLogger("sparkjet")

RESULTS = "results"
LATE_ROWS = "late"
ATTEMPTS = 3
LOST_STATE = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@dataclass(frozen=True)
class Parts:
    """What an engine is built from: the query, its settings and the services it uses."""

    pipeline: Pipeline
    guarantee: Guarantee
    partitions: int
    session: SparkSession
    store: SnapshotStore
    log: RecordLog
    outputs: Outputs
    clock: Clock
    listener: StepListener


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

    def run_batch(self, batch: DataFrame, batch_id: int) -> bool:
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
        self._run(batch, batch_id)
        return True

    def close_windows(self) -> bool:
        """Emit what is still open, as an epoch of its own without a batch; False if nothing is open."""
        if self.state.operator.last_end is None:
            return False
        self._run(None, None)
        return True

    def fenced(self) -> FencedError | None:
        """The error to end with if another driver has taken over, None if none has."""
        return self._parts.log.fenced(self._slot, self.record)

    def _run(self, batch: DataFrame | None, batch_id: int | None) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._epoch(batch, batch_id, attempt)
            except Exception as error:
                undecided = self.record.epoch < self.progress.epoch
                if LOST_STATE not in str(error) or not undecided or attempt == ATTEMPTS - 1:
                    raise
                logger.warning("epoch %d: state was lost with an executor, restoring it", self.progress.epoch)
                self.state.operator.release()
                name = f"{self._transaction(attempt)}-moved"
                self.state.restore(self.record, self._parts.session, self._parts.store, name)
            else:
                return

    def _epoch(self, batch: DataFrame | None, batch_id: int | None, attempt: int) -> None:
        parts, operator, tracker = self._parts, self.state.operator, self.state.tracker
        progress = self.progress = EpochProgress(epoch=self.record.epoch + 1, batch=batch_id)
        transaction = self._transaction(attempt)
        self._reached(Step.BEGIN)
        with progress.timed("settle"):
            parts.outputs.settle()
        now = max(parts.clock.now(), self.record.clock)
        judged_by = None if tracker.watermark == MIN else tracker.watermark
        outcome: Aggregation | None = None
        if batch is not None:
            with progress.timed("aggregate"):
                known = [substream.id for substream in tracker.progress()]
                keep = LATE_ROWS in parts.outputs.sinks
                outcome = aggregate(batch, parts.pipeline, operator, known, keep_rows=keep)
                self._count(outcome, now)
        try:
            self._reached(Step.AGGREGATED)
            if outcome is not None:
                tracker.advance(now)
                with progress.timed("save"):
                    self.state.append(outcome, str(transaction), parts.store)
            else:
                tracker.force(operator.last_end or MIN)
            self._reached(Step.SAVED)
            with progress.timed("prepare"):
                prepared = self._prepare(operator.close(tracker.watermark), outcome, transaction, judged_by)
            self._reached(Step.PREPARED)
        finally:
            if outcome is not None:
                outcome.release()
        self._decide(prepared, now, batch_id)

    def _count(self, outcome: Aggregation, now: int) -> None:
        for name, timestamp in outcome.highest.items():
            self.state.tracker.report(name, timestamp, now)
        self.progress.accepted = outcome.accepted
        self.progress.late, self.progress.null_timestamps = dict(outcome.late), dict(outcome.null_timestamps)
        self.state.late += outcome.late
        self.state.null_timestamps += outcome.null_timestamps
        if outcome.dropped:
            logger.warning(
                "epoch %d dropped late rows %s and rows without event time %s",
                self.progress.epoch,
                self.progress.late,
                self.progress.null_timestamps,
            )

    def _prepare(
        self, windows: DataFrame | None, outcome: Aggregation | None, transaction: TransactionId, judged_by: int | None
    ) -> list[Prepared]:
        outputs, pipeline = self._parts.outputs, self._parts.pipeline
        prepared: list[Prepared] = []
        if windows is not None:
            prepared += outputs.prepare(RESULTS, pipeline.finishing(pipeline.output(windows)), transaction)
        if outcome is not None and outcome.rows is not None and outcome.dropped:
            rows = outcome.late_rows(judged_by)
            prepared += outputs.prepare(LATE_ROWS, rows, replace(transaction, sink=LATE_ROWS))
        return prepared

    def _decide(self, prepared: list[Prepared], now: int, batch_id: int | None) -> None:
        """Record, commit and clean up; a sink that promises less is committed before the record or not recorded."""
        parts, progress = self._parts, self.progress
        if parts.guarantee is Guarantee.AT_LEAST_ONCE:
            self._commit(prepared)
            prepared = []
        recorded = prepared if parts.guarantee is Guarantee.EXACTLY_ONCE else []
        with progress.timed("record"):
            record = self._next_record(recorded, now, batch_id)
            parts.log.append(self._slot + 1, record)
        obsolete = self.record.names() - record.names()
        self._slot, self.record = self._slot + 1, record
        self._reached(Step.DECIDED)
        self._commit(prepared)
        self._reached(Step.COMMITTED)
        with progress.timed("clean"):
            self.state.operator.release()
            for name in sorted(obsolete | (self.state.obsolete - record.names())):
                parts.store.remove(name)
            self.state.obsolete.clear()
        self._reached(Step.CLEANED)

    def _commit(self, prepared: list[Prepared]) -> None:
        with self.progress.timed("commit"):
            self._parts.outputs.decided(prepared)
            self._parts.outputs.settle(lambda: self._reached(Step.COMMITTING))

    def _next_record(self, transactions: list[Prepared], now: int, batch_id: int | None) -> Record:
        position = self.record.spark
        if batch_id is not None:
            prefix = f"{self.record.takeover:06d}-{self.progress.epoch:09d}"
            position = self._checkpoint.capture(batch_id, position, self._parts.store, prefix)
        return Record(
            kind="closing" if batch_id is None else "epoch",
            query=self.record.query,
            takeover=self.record.takeover,
            run=self.record.run,
            epoch=self.progress.epoch,
            fingerprint=self.record.fingerprint,
            clock=now,
            watermarks=self.state.tracker.snapshot(),
            windows=self.state.window_state(),
            spark=position,
            transactions=transactions,
            late=dict(self.state.late),
            null_timestamps=dict(self.state.null_timestamps),
        )

    def _transaction(self, attempt: int) -> TransactionId:
        return TransactionId(self.record.query, RESULTS, self.record.takeover, self.record.epoch + 1, attempt)

    def _reached(self, step: Step) -> None:
        self._parts.listener(step, self.progress.epoch)


def configure(session: SparkSession, partitions: int) -> None:
    """Settings of the query's own session that keep the state where it is: hash-partitioned, read without a shuffle."""
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    # Sketches and structs would fall back to sorting at 128 groups a task, which every window exceeds.
    session.conf.set("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", "10000")
