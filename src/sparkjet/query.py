"""The handle of a running query, with the shape of Spark's ``StreamingQuery``."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkjet.engine.caught_up import caught_up_by
from sparkjet.engine.inspection import used_up
from sparkjet.engine.progress import merged
from sparkjet.errors import AnalysisError, FencedError, SparkjetError
from sparkjet.full_disk import full_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.engine import Engine
    from sparkjet.engine.plan import Plan
    from sparkjet.engine.progress import EpochProgress
    from sparkjet.ticker import Ticker

logger = logging.getLogger("sparkjet")

RECENT = 100
SETTLING = 1
"""Seconds between two looks at how the last epoch has ended, and at what is decided and not committed."""


class _StoppedError(SparkjetError):
    """The query is being stopped; the batch that Spark has just planned is not run."""


class StreamingQuery:
    """A started query. Thread-safe; every method runs on the driver."""

    _places: Sequence[Path] = ()

    def __init__(
        self, engine: Engine, plan: Plan, guarantees: Mapping[str, str], *, close_at_end: bool, ticker: Ticker | None
    ) -> None:
        self._engine = engine
        engine.ended = self._note
        self._plan = plan
        self._close_at_end = close_at_end
        self._ticker = ticker
        self._guarantees = dict(guarantees)
        self._spark: SparkQuery
        self._epoch = threading.Lock()
        self._attached = threading.Event()
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
        """Spark's progress of the last batch, with our keys (docs/guide/running.md); None before the first."""
        return next(reversed(self.recentProgress), None)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """Progress of the last epochs, oldest first."""
        return merged([json.loads(progress.json) for progress in self._spark.recentProgress], list(self._progress))

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
        """For tests: wait until all input there is has been committed, and let the clock tick once."""
        self._spark.processAllAvailable()
        with self._epoch:
            self._join()
            if self._ticker is not None:
                self._tick()
        if self._failure is not None:
            raise self._failure

    def retireSubstream(self, substream: str) -> None:
        """Stop waiting for a substream that will have no more data, e.g. of a partition that was removed.

        Windows that only waited for it are emitted at once; if it comes back it is a new substream.

        Raises:
            AnalysisError: There is no such substream; the message names the nearest.
        """
        with self._epoch:
            if self._finished.is_set() or self._failure is not None:
                message = f"retireSubstream({substream!r}): the query has ended."
                raise AnalysisError(message)
            self._refuse_if_stopping()
            try:
                self._engine.retire(substream)
            except AnalysisError:
                raise
            except BaseException as error:
                self._end(error)
                raise

    def explain(self, extended: bool = False) -> None:
        """Print Spark's plan of the last batch's source."""
        self._spark.explain(extended)

    def stop(self, timeout: float | None = None) -> None:
        """End the query after the current epoch has committed; a second call does nothing.

        Raises:
            TimeoutError: If the epoch was still running after ``timeout`` seconds; the query stops after it.
        """
        self._stopping.set()
        if not self._epoch.acquire(timeout=-1 if timeout is None else timeout):
            message = f"Epoch {self._engine.record.epoch + 1} is still running; the query stops after it."
            raise TimeoutError(message)
        try:
            self._join()
            # Only between epochs: Spark's own stop would interrupt one in the middle.
            self._spark.stop()
        finally:
            self._epoch.release()
        self._finished.wait()

    def _attach(self, spark_query: SparkQuery) -> None:
        self._spark = spark_query
        self._attached.set()
        threading.Thread(target=self._supervise, name=f"sparkjet-{self.id}", daemon=True).start()
        if self._ticker is not None:
            self._ticker.start(self.id, lambda: self._between_epochs(self._tick))

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Called by Spark in the query's thread."""
        while not self._epoch.acquire(timeout=0.05):
            if self._stopping.is_set() or self._failure is not None:
                break
        else:
            try:
                self._refuse_if_stopping()
                self._engine.run_batch(batch, batch_id, self._caught_up(batch_id))
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
        if self._stopping.is_set() or self._failure is not None:
            message = "The query is being stopped."
            raise _StoppedError(message)

    def _between_epochs(self, work: Callable[[], None]) -> None:
        """Called by ticker and supervisor; while an epoch runs it does the same itself. Errors end the query."""
        if self._epoch.acquire(blocking=False):
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
                self._end(error)
            finally:
                self._epoch.release()

    def _tick(self) -> None:
        """Run an epoch without a batch if the clock makes one due; holds the lock."""
        if self._stopping.is_set() or self._finished.is_set() or self._failure is not None or not self._spark.isActive:
            return
        if self._spark.lastProgress is None:
            # Spark has not looked at the sources yet: what has piled up there must not find its windows closed.
            return
        try:
            self._engine.tick(self._caught_up(None))
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._end(error)

    def _join(self) -> None:
        """Wait for the end of the last epoch, whose failure must not be left until the next; holds the lock."""
        if self._failure is None:
            try:
                self._engine.join()
            except BaseException as error:  # noqa: BLE001 - kept for the user
                self._end(error)

    def _end(self, error: BaseException) -> None:
        """End the query between two batches; holds the lock."""
        self._fail(error)
        self._spark.stop()

    def _caught_up(self, batch_id: int | None) -> dict[str, bool | None]:
        """What Spark's newest progress says of the substreams."""
        if not self._attached.is_set():
            # Spark may run the first batch before it has returned the query to us.
            return {}
        newest = self._spark.lastProgress
        if newest is None:
            return {}
        told, position = json.loads(newest.json), self._engine.record.spark
        between = batch_id is None and position is not None and told["batchId"] >= position.batch
        return caught_up_by(self._plan.inputs, told, self._engine.state.tracker.progress(), between_batches=between)

    def _supervise(self) -> None:
        try:
            try:
                while not self._spark.awaitTermination(SETTLING):
                    # What could not be committed must not wait for the next epoch, which may be far away.
                    self._between_epochs(lambda: self._engine.settle(last=False))
            except Exception as error:  # noqa: BLE001 - whatever ended Spark's query is kept for the user
                if not self._stopping.is_set() and self._failure is None:
                    self._fail(error)
            with self._epoch:
                self._join()
            if self._close_at_end and self._failure is None and not self._stopping.is_set():
                with self._epoch:
                    if used_up(self._spark):
                        self._engine.close_windows()
                    else:
                        logger.warning("query %s was stopped from outside before its end; windows stay open", self.id)
            if self._failure is None:
                with self._epoch:
                    self._engine.settle(last=True)
        except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
            self._fail(error)
        finally:
            if self._ticker is not None:
                self._ticker.stop()
            self._finished.set()

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
            error = full_disk(error, self._places) or error
        if self._failure is None:
            self._failure = error

    def _note(self, progress: EpochProgress) -> None:
        """Keep the progress of the epoch that has just ended."""
        self._progress.append(progress.describe(self._engine.record, self._engine.state))
