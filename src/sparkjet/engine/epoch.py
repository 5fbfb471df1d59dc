"""The epoch: from a micro-batch, a tick of the clock or the end of the input to committed sinks."""

from __future__ import annotations

from concurrent.futures import Executor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sparkjet.catalyst.moments import Moment
from sparkjet.engine.caught_up import announced, carried, heard_in, in_order, waiting
from sparkjet.engine.dead_letters import DeadLetters
from sparkjet.engine.expectations import Expectations
from sparkjet.engine.input_batch import InputBatch
from sparkjet.engine.phases import EpochPhase
from sparkjet.engine.progress import EpochProgress
from sparkjet.engine.refused_rows import RefusedRows
from sparkjet.engine.results import Results
from sparkjet.engine.sharing import Share
from sparkjet.engine.spark_checkpoint import ends_of
from sparkjet.errors import RefusedRowsError, SinkError, StorageError
from sparkjet.plan.outputs import Rows
from sparkjet.plan.plan import PlannedDeadLetters, PlannedOutput, PlannedStreamOutput
from sparkjet.query_log import logger
from sparkjet.sinks.protocol import Guarantee, TransactionId
from sparkjet.snapshots.record import EpochKind
from sparkjet.time import MAX, MIN, WriterProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import DataFrame

    from sparkjet.engine.arrival import Arrival
    from sparkjet.engine.context import EngineContext, EpochRequest
    from sparkjet.engine.spark_checkpoint import SparkCheckpoint
    from sparkjet.engine.state import QueryState
    from sparkjet.snapshots.record import PreparedTransaction, Record, SparkPosition
    from sparkjet.time import Heard, InputsState


class Epoch:
    """One attempt at one epoch, on the driver.

    The order of calls is: :meth:`aggregate`, :meth:`advance`, :meth:`prepare`, :meth:`decide`, :meth:`publish`.
    ``aggregate`` reads nothing of the state except up to where windows have closed, so it may run in parallel with the
    end of the previous epoch, from its ``prepare`` on. The caller restores the state when one of them fails, and calls
    :meth:`release` in any case.
    """

    def __init__(
        self,
        context: EngineContext,
        state: QueryState,
        checkpoint: SparkCheckpoint,
        request: EpochRequest,
        transaction: TransactionId,
        fixed: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._context = context
        self._state = state
        self._checkpoint = checkpoint
        self._transaction = transaction
        self._arrived: InputBatch | None = None
        self._arrivals: dict[tuple[str, int], Arrival] = {}
        self._highest: dict[str, int] = {}
        query = transaction.query if request.again is None else request.again.query
        self._moment = Moment(f"{query}/{transaction.epoch}", request.now, fixed)
        self._expectations = Expectations(context.plan, self._moment)
        self._results = Results(context.plan, state, self._expectations, self._moment, context.limit)
        self._position: SparkPosition | None = None
        self._polled: InputsState | None = None
        self._share = Share()
        self._prepared: list[PreparedTransaction] = []
        self._opened: list[TransactionId] = []
        self._tried: list[PreparedTransaction] = []
        self._refused: dict[str, RefusedRows] = {}
        # For the sources whose messages are acknowledged: where the batch ends, and the blobs of their ids.
        self._received: dict[str, int] = {}
        self._queues: dict[str, str] = {}
        self._ends: dict[str, str] = {}
        self._heard: dict[str, Heard] = {}
        self.request = request
        self.progress = EpochProgress(epoch=transaction.epoch, batch=request.batch_id)

    def aggregate(self) -> None:
        """Partially aggregate the batch for every stage that reads it, and find out how far each substream has come.

        Changes nothing.
        """
        self._reached(EpochPhase.BEGIN)
        if self.request.batch is not None:
            with self.progress.timed(EpochPhase.AGGREGATE):
                self._aggregate(self.request.batch)
        self._reached(EpochPhase.AGGREGATE)

    @property
    def late(self) -> int:
        """Number of rows that were late when :meth:`aggregate` judged them."""
        return sum(arrival.late.total() for arrival in self._arrivals.values())

    def advance(self, record: Record, share: Share) -> None:
        """Advance the watermark and the windows, in memory only; outputs get the rows of the ``share``."""
        self._share = share
        tracker, request = self._state.tracker, self.request
        again = request.again
        if again is not None and again.polled is not None:
            tracker.restore(again.polled)
        before = tracker.snapshot()
        # A clock that was set back since then sets timers back by as much.
        goes_on = before.goes_on_like(record.watermarks) and before.now <= request.now
        self._polled = None if goes_on else before
        self._results.begin(request.now, tracker.watermark, share)
        for name, side in list(self._arrivals):
            self._results.accept(name, side, self._arrivals.pop((name, side)))
        self.progress.count(self._results.arrivals)
        self._queues, self._heard = record.queues, record.heard
        inputs = self._context.plan.inputs
        ends: list[str] = []
        if request.batch_id is not None:
            recorded = None if again is None else again.position
            offsets = ends_of(recorded) if recorded else self._checkpoint.end_offsets(request.batch_id)
            self._ends = dict(offsets)
            self._received = self._context.receivers.meet(offsets, record.queues)
            # Before the watermark advances: a partition without rows yet would find its first rows late.
            names = self._context.plan.source_names
            ends = in_order(offsets, names)
            then = {} if again is None else again.heard
            ends, self._heard = heard_in(self._context.plan.hearings, ends, names, record.heard, then)
            self._context.alignment.look(inputs, ends)
            for substream in announced(inputs, ends):
                tracker.add(substream, request.now)
        for substream, timestamp in self._highest.items():
            tracker.report(substream, timestamp, request.now)
        # After the report: a substream may be in this batch for the first time.
        told = list(carried(inputs, ends, tracker))
        for substream, watermark in told:
            tracker.carry(substream, watermark, request.now)
        self._warn_of_waiting(waiting(inputs, told))
        for substream in self._context.alignment.held:
            # It has rows, which the source was told not to read: idle or retired, it would find them late.
            tracker.hold(substream, request.now)
        with self.progress.timed(EpochPhase.ADVANCE):
            if request.kind is EpochKind.CLOSING:
                self._results.close_all()
            else:
                tracker.advance(request.now, request.caught_up)
                self._results.close(share.closing(tracker.watermark))
        # After a tick too, by which a partition may have become idle or retired.
        self._context.alignment.tell(tracker)
        self.progress.held = self._context.alignment.held
        # Now: if epochs overlap, the next one may have advanced it by the time the sinks ask.
        reached = share.closing(tracker.watermark)
        watermark = None if reached == MIN else reached
        self._transaction = replace(self._transaction, clock=request.now, watermark=watermark)
        self._position = record.spark
        if request.batch_id is not None:
            # Now: Spark may have written more by the time of the record.
            prefix = f"{record.takeover:06d}-{self.progress.epoch:09d}"
            self._position = recorded or self._checkpoint.capture(
                request.batch_id, record.spark, self._context.store, prefix
            )
        self._reached(EpochPhase.ADVANCE)

    def _warn_of_waiting(self, prefixes: Collection[str]) -> None:
        """Say once of each input that nobody tells the watermark for which it waits."""
        for prefix in sorted({*prefixes} - self._context.waiting):
            self._context.waiting.add(prefix)
            logger.warning(
                "withWatermark: carried() waits, maybe forever: a writer of the rows of %s reports no watermark. "
                "Name another policy, carried(otherwise=limiting_lag(…)), or writers whose rows do not count, "
                "carried(without=[…])",
                prefix.removesuffix("/") or "the stream",
            )

    @property
    def name(self) -> str:
        """Start of the names of everything that this attempt stores."""
        return str(self._transaction)

    @property
    def attempt(self) -> int:
        """The number of times that the epoch was begun before in this process."""
        return self._transaction.attempt

    def prepare(self, beside: Executor) -> None:
        """Save the state and prepare every sink; whatever was prepared is undone if any of it fails."""
        with self.progress.timed(EpochPhase.COMMIT):
            self._context.committer.attempt()
        saving = beside.submit(self._save)
        try:
            try:
                with self.progress.timed(EpochPhase.PREPARE):
                    self._prepared = self._transactions()
                    self._context.committer.try_out(self._prepared, self._tried)
            finally:
                # The data that it reads is released next, whether or not the sinks have failed.
                wait([saving])
            saving.result()
            self._reached(EpochPhase.PREPARE)
            self._context.committer.check_alive(self._prepared)
        except BaseException:
            # Not in decide(): a put that fails may have decided all the same.
            self._context.committer.abort(self._opened)
            raise

    def decide(self, slot: int, before: Record) -> Record:
        """Write the record into its slot.

        With at-least-once, the record names the transactions too. If rows were published before the record, a rerun
        with more input would reuse their epoch's number, and a reader that has seen that number would drop the new
        rows.
        """
        committer = self._context.committer
        violated = self.progress.violated = self._expectations.violated
        names, replay = self._context.plan.expectations, self.request.replay
        decided = [] if self._context.guarantee is Guarantee.NONE else self._prepared
        with self.progress.timed(EpochPhase.DECIDE):
            record = self._state.saved_into(
                msgspec.structs.replace(
                    before,
                    kind=self.request.kind,
                    epoch=self.progress.epoch,
                    clock=self.request.now,
                    spark=self._position,
                    polled=self._polled,
                    # Transactions to be committed must be named by the newest record: only that one is read again.
                    queues=self._queues,
                    heard=self._heard,
                    transactions=[*committer.unsettled, *decided],
                    published=committer.published(before, decided),
                    # Not at the takeover: its predecessor's checkpoint may be checked once more.
                    overlap=self._context.overlap,
                    replayed=before.replayed if replay is None else replay.noted(before.replayed),
                    history=self.request.history or before.history,
                    after=self._share.border,
                    # The plan of a replay does not have all of them.
                    expectations=({} if replay is None else before.expectations)
                    | {name: before.expectations.get(name, 0) + violated[name] for name in names},
                )
            )
            self._context.log.append(slot, record)
        return record

    def abandon(self) -> None:
        """Undo what was prepared, as another record has come first; only if that is certainly not this epoch's."""
        self._context.committer.abort(self._opened)

    def publish(self, before: Record, record: Record) -> None:
        """Commit what was decided and remove what ``record`` no longer names."""
        self._reached(EpochPhase.DECIDE)
        self._commit()
        self._reached(EpochPhase.COMMIT)
        with self.progress.timed(EpochPhase.CLEAN):
            # Here: after the last phase, Spark may have interrupted the thread, and a call to the JVM would fail.
            self.release()
            self._state.release()
            self._context.log.clean(before.names() | self._state.take_obsolete(), record)
            self._context.receivers.acknowledge(self._received)
            self._context.committer.age(record.query)
        self._reached(EpochPhase.CLEAN)

    def release(self) -> None:
        """Release everything that was held in memory for this epoch; a second call does nothing."""
        if self._arrived is not None:
            self._arrived.release()
        for arrival in self._arrivals.values():
            arrival.release()
        self._results.release()

    def _aggregate(self, batch: DataFrame) -> None:
        plan = self._context.plan
        arrived = self._arrived = InputBatch(batch, plan, self._moment)
        if plan.expected:
            self._expectations.of_input(arrived)
        if not plan.stages:
            # An output reads it later, exactly once: what is written is what was read.
            return
        try:
            for state in self._state.stages.values():
                # Rows of the past, which are read or replayed, do not show how late rows come; nor do those of windows
                # that were closed early.
                is_past = self.request.batch_id is None or state.shed_before(self._state.tracker.watermark) is not None
                state.reached = None if is_past else self._state.tracker.reached
            for name, side, arrival in arrived.arrivals(self._state.stages, plan.progress_detail):
                self._arrivals[name, side] = arrival
            if self.request.replay is None:
                # Rows of the past do not show how far the input has come, and must not wake idle substreams.
                self._highest = arrived.highest(self._arrivals.values())
        finally:
            if not plan.of_stream and not plan.of_failures:
                arrived.release()

    def _save(self) -> None:
        """Write the state delta while the sinks prepare: neither reads what the other writes."""
        with self.progress.timed(EpochPhase.SAVE):
            for name, stage in self._state.stages.items():
                stage.save(f"{self.name}-{name}", self._context.store)
            if self._received:
                self._queues = self._context.receivers.save(self._received, self.name)
        self._reached(EpochPhase.SAVE)

    def _transactions(self) -> list[PreparedTransaction]:
        early = self._state.early_due(self._context.plan, self.request.now, arrived=self._results.accepted)
        committer = self._context.committer
        due = committer.due(self.request.now)
        until = MAX if self.request.is_last else self.request.now
        prepared: list[PreparedTransaction] = []
        # Dead letters last: unless a separate job finds them, the jobs of the other outputs do.
        for output in sorted(self._context.plan.outputs, key=lambda each: isinstance(each, PlannedDeadLetters)):
            rows = self._rows(output, early=output.name in early)
            if rows is None and output.name in due:
                rows = self._context.session.createDataFrame([], output.sample().schema)
            reached = self._reached_by(output)
            transaction = replace(self._transaction, sink=output.name, progress=reached)
            made: list[PreparedTransaction] = []
            if rows is not None:
                rows = self._moment.of(rows, "output", output.name)
                made = self._prepare(output, rows, transaction, prepared)
            # Asked last: only now it is certain that there were no rows.
            if not made and committer.is_to_tell(output.name, until, reached.watermark):
                if rows is None:
                    self._opened.append(transaction)
                made = self._told(output.name, transaction)
            prepared += made
        for output in self._context.plan.of_stages:
            changes = self._state.changes.get(output.name)
            if changes is not None:
                is_open = self._state.stages[output.reads].is_open
                (changes.sent if output.name in early or not is_open else changes.kept)()
        self._state.early_at |= dict.fromkeys(early, self.request.now)
        return prepared

    def _prepare(
        self,
        output: PlannedOutput | PlannedStreamOutput | PlannedDeadLetters,
        rows: DataFrame,
        transaction: TransactionId,
        earlier: Sequence[PreparedTransaction],
    ) -> list[PreparedTransaction]:
        """Prepare an output; after ``divert`` without the rows that its sink refuses, which become dead letters."""
        committer = self._context.committer
        self._opened.append(transaction)
        if isinstance(output, PlannedDeadLetters) or output.chain is None or output.chain.tried_from is None:
            return committer.prepare(output.name, rows, transaction)
        try:
            made = committer.prepare_tried(output.name, rows, transaction, earlier)
        except RefusedRowsError as error:
            committer.abort([transaction])
            tried = self._moment.of(self._tried_rows(output), "tried", output.name)
            refused = RefusedRows(tried, committer, transaction, earlier, error)
            self._refused[output.name] = refused
            again = refused.next_transaction()
            self._opened.append(again)
            made = committer.prepare_tried(output.name, refused.accepted(), again, earlier)
        self._tried += made
        return made

    def _tried_rows(self, output: PlannedOutput | PlannedStreamOutput) -> DataFrame:
        """The rows of an output whose rows are diverted, including failed ones."""
        if isinstance(output, PlannedOutput):
            found = self._results.tried(output.name)
            assert found is not None  # noqa: S101 - it is asked for where there are rows
            return found
        assert self._arrived is not None  # noqa: S101 - without a batch such an output has no rows
        return self._arrived.tried_again(output)

    def _told(self, output: str, transaction: TransactionId) -> list[PreparedTransaction]:
        """Tell the readers of an output about a watermark; empty at the end of a run if the sink is gone."""
        try:
            return self._context.committer.tell(output, transaction)
        except (SinkError, StorageError) as error:
            if not self.request.is_last:
                raise
            # Everything that was read is committed: a query that is being stopped must not fail for this.
            logger.warning(
                "output %r: readers were not told of the last watermark, the next run tells it: %s", output, error
            )
            return []

    def _reached_by(self, output: PlannedOutput | PlannedStreamOutput | PlannedDeadLetters) -> WriterProgress:
        """The progress that readers of an output may be told."""
        reached = self._transaction.watermark
        watermark = self._context.plan.watermark_of(output, MIN if reached is None else reached)
        return WriterProgress(
            query=self._transaction.query,
            output=output.name,
            epoch=self.progress.epoch,
            watermark=watermark,
            offsets=self._ends,
        )

    def _rows(
        self, output: PlannedOutput | PlannedStreamOutput | PlannedDeadLetters, *, early: bool
    ) -> DataFrame | None:
        """The rows for an output, None if there are certainly none."""
        if isinstance(output, PlannedStreamOutput):
            return None if self._arrived is None else self._arrived.output(output)
        if isinstance(output, PlannedDeadLetters):
            letters = DeadLetters(output, self._arrived, self._results, self._moment)
            refused = [self._refused[name].letters() for name in output.refused if name in self._refused]
            rows = letters.rows(self.progress.epoch, refused)
            self.progress.failed[output.chain.divert] = letters.counts
            return rows
        if output.rows is Rows.LATE:
            return self._results.late_rows(output)
        changes = self._state.changes.get(output.name)
        if changes is None:
            return self._results.rows(output)
        return self._results.changed_rows(output, changes, early=early)

    def _commit(self) -> None:
        with self.progress.timed(EpochPhase.COMMIT):
            self._context.committer.decided(self._prepared, self.request.now)
            self._prepared = []
            self._context.committer.attempt(lambda: self._reached(EpochPhase.COMMITTING))

    def _reached(self, phase: EpochPhase) -> None:
        self._context.listener(phase, self.progress.epoch)
