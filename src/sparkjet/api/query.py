"""The handle of a running query, with the shape of Spark's ``StreamingQuery``."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkjet.api.ending import Ending, FailedError
from sparkjet.catalyst.plan_analysis import used_up
from sparkjet.engine.caught_up import caught_up_by
from sparkjet.engine.progress import merged
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.engine import Engine
    from sparkjet.engine.progress import EpochProgress
    from sparkjet.engine.ticker import Ticker
    from sparkjet.plan.plan import Plan

logger = logging.getLogger("sparkjet")

RECENT = 100
SETTLING = 1
"""Seconds between two looks at how the last epoch has ended, and at what is decided and not committed."""
POLLING = 0.05
"""Seconds between two looks of a batch that Spark has planned at whether it may run."""


class StreamingQuery:
    """A started query. Thread-safe; every method runs on the driver."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        guarantees: Mapping[str, str],
        *,
        places: Sequence[Path],
        close_at_end: bool,
        ticker: Ticker | None,
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
        self._ending = Ending(engine.fenced, places)
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
        return not self._ending.finished

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
        ended = self._ending.wait(timeout)
        if ended:
            self._ending.raise_failure()
        return None if timeout is None else ended

    def exception(self) -> BaseException | None:
        """What the query failed with, None if it did not."""
        return self._ending.failure

    def processAllAvailable(self) -> None:
        """For tests: wait until all input there is has been committed, and let the clock tick once."""
        self._spark.processAllAvailable()
        with self._epoch:
            self._join()
            if self._ticker is not None:
                self._tick()
        self._ending.raise_failure()

    def retireSubstream(self, substream: str) -> None:
        """Stop waiting for a substream that will have no more data, e.g. of a partition that was removed.

        Windows that only waited for it are emitted at once; if it comes back it is a new substream.

        Raises:
            AnalysisError: There is no such substream; the message names the nearest.
        """
        with self._epoch:
            if self._ending.begun:
                message = f"retireSubstream({substream!r}): the query has ended or is being stopped."
                raise AnalysisError(message)
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
        """End the query once the current epoch has committed, and wait for that; another call waits again.

        Raises:
            TimeoutError: If it has not ended within ``timeout`` seconds; it then does so by itself, as soon as it can.
        """
        self._ending.ask(self._stop_between_epochs, f"sparkjet-stop-{self.id}")
        if not self._ending.wait(timeout):
            message = (
                f"The query has not stopped within {timeout} seconds. It stops by itself when the current epoch has "
                f"ended (the last one recorded is {self._engine.record.epoch}); to wait for it, call stop again."
            )
            raise TimeoutError(message)

    def _attach(self, spark_query: SparkQuery) -> None:
        self._spark = spark_query
        self._attached.set()
        threading.Thread(target=self._supervise, name=f"sparkjet-{self.id}", daemon=True).start()
        if self._ticker is not None:
            self._ticker.start(self.id, lambda: self._between_epochs(self._tick))

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Called by Spark in the query's thread."""
        while not self._epoch.acquire(timeout=POLLING):
            if self._ending.begun:
                break
        else:
            try:
                if not self._ending.begun:
                    self._engine.run_batch(batch, batch_id, self._caught_up(batch_id))
                    return
            except BaseException as error:
                self._ending.fail(error)
                raise
            finally:
                self._epoch.release()
        self._refuse(batch_id)

    def _refuse(self, batch_id: int) -> None:
        """Leave a batch that Spark has planned to the next run.

        Spark takes an error for a failure of the query, and a return for a batch that is done: it may write down so,
        even after it was stopped. But once it was, it asks for no other batch and does not commit this one to its
        source.
        """
        while self._ending.failure is None and self._spark.isActive:
            self._ending.wait(POLLING)
        if self._ending.failure is not None:
            message = f"Batch {batch_id} is not run: the query has failed."
            raise FailedError(message) from self._ending.failure
        try:
            self._engine.refuse(batch_id)
        except BaseException as error:
            self._ending.fail(error)
            raise

    def _stop_between_epochs(self) -> None:
        with self._epoch:
            if not self._ending.finished:
                self._join()
                self._stop_spark()

    def _stop_spark(self) -> None:
        """End Spark's query; only between epochs, as Spark would interrupt one in the middle."""
        try:
            self._spark.stop()
        except Exception:  # the supervisor waits for Spark's query in any case, and learns how it ends
            logger.warning("query %s: Spark's query could not be stopped at once", self.id, exc_info=True)

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
        if self._ending.begun or not self._spark.isActive:
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
        try:
            self._engine.join()
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._end(error)

    def _end(self, error: BaseException) -> None:
        """End the query between two batches; holds the lock."""
        self._ending.fail(error)
        self._stop_spark()

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
            except Exception as error:
                if self._ending.stopping:
                    # Spark interrupts its thread wherever it is, in a source for example; in an epoch it never is.
                    logger.warning("query %s: Spark's query failed while it was being stopped", self.id, exc_info=True)
                elif self._ending.failure is None:
                    self._ending.fail(error)
            with self._epoch:
                self._join()
            if self._close_at_end and not self._ending.begun:
                with self._epoch:
                    if used_up(self._spark):
                        self._engine.close_windows()
                    else:
                        logger.warning("query %s was stopped from outside before its end; windows stay open", self.id)
            if self._ending.failure is None:
                with self._epoch:
                    self._engine.settle(last=True)
        except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
            self._ending.fail(error)
        finally:
            if self._ticker is not None:
                self._ticker.stop()
            self._ending.finish()

    def _note(self, progress: EpochProgress) -> None:
        """Keep the progress of the epoch that has just ended."""
        self._progress.append(progress.describe(self._engine.record, self._engine.state))
