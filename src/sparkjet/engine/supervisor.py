"""The supervisor: when the epochs between Spark's batches run, and how a query ends."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from sparkjet.catalyst.plan_analysis import fail_at_stop, used_up
from sparkjet.engine.progress import newest_progress
from sparkjet.errors import AnalysisError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.backfilling import Backfilling
    from sparkjet.engine.ending import Ending
    from sparkjet.engine.engine import Engine
    from sparkjet.engine.ticker import Ticker
    from sparkjet.executors import AwaitedExecutors

SETTLING = 1
"""Seconds between two checks of how the last epoch has ended, and of decided transactions that are not committed."""


class Supervisor:
    """Watches over Spark's query from its start to its end, in a separate thread; thread-safe.

    It uses the engine only between two batches: for ticks of the clock, to retire a substream, to commit what could not
    be committed at once, and to close the windows at the end.

    Args:
        engine: The engine.
        ending: The end of the query.
        spark: Spark's query.
        ticker: Lets time pass while nothing arrives, None if no policy or output depends on the clock.
        close_at_end: Whether the end of the input closes the windows.
        executors: Reports when an epoch waits for executors that do not come; None on a local master.
        backfilling: The epochs before the stream, if there are any.
    """

    def __init__(
        self,
        engine: Engine,
        ending: Ending,
        spark: SparkQuery,
        *,
        ticker: Ticker | None,
        close_at_end: bool,
        executors: AwaitedExecutors | None,
        backfilling: Backfilling | None = None,
    ) -> None:
        self._backfilling = backfilling
        self._engine = engine
        self._ending = ending
        self._turn = engine.turn
        self._spark = spark
        self._ticker = ticker
        self._close_at_end = close_at_end
        self._executors = executors

    @property
    def ending(self) -> Ending:
        """The end of the query."""
        return self._ending

    @property
    def is_called_by_query(self) -> bool:
        """Whether the caller is called by the query itself, so that it must not wait for it."""
        return self._turn.is_ours

    def start(self) -> None:
        """Start to watch, and to let time pass."""
        threading.Thread(
            target=copy_context().run, args=(self._watch,), name=f"sparkjet-{self._query}", daemon=True
        ).start()
        if self._ticker is not None:
            self._ticker.start(self._query, lambda: self._if_free(self._tick))

    def stop(self) -> None:
        """End the query once the current epoch has committed; returns at once."""
        self._ending.ask(self._stop_between_epochs, f"sparkjet-stop-{self._query}")

    def drain(self) -> None:
        """Wait until all available input has been committed, and let the clock tick once."""
        while self._is_behind and not self._ending.begun:
            self._ending.wait(SETTLING / 10)
        try:
            self._spark.processAllAvailable()
        except StreamingQueryException:
            # Spark has a batch's error only as text.
            self._ending.raise_failure()
            raise
        with self._turn:
            self._join()
            if not self._ending.begun:
                self._settle()
            if self._ticker is not None:
                self._tick()
            if not self._ending.begun:
                self._publish()
        self._ending.raise_failure()

    def retire(self, substream: str) -> None:
        """Stop waiting for a substream; see ``StreamingQuery.retireSubstream``."""
        with self._turn:
            if self._ending.begun:
                raise AnalysisError(f"retireSubstream({substream!r}): the query has ended or is being stopped.")
            self._join()
            self._ending.raise_failure()
            # Not by its error: a function that the epoch calls may raise AnalysisError too, which ends the query.
            self._engine.check_substream(substream)
            try:
                self._engine.retire(substream)
            except BaseException as error:
                self._fail(error)
                raise

    @property
    def _query(self) -> str:
        return self._engine.record.query

    def _watch(self) -> None:
        """The supervisor's thread."""
        try:
            self._read_history()
            self._until_spark_ends()
            with self._turn:
                self._join()
            if self._close_at_end and not self._ending.begun:
                with self._turn:
                    self._close_windows()
            if self._ending.failure is None:
                with self._turn:
                    self._engine.settle(last=True)
        except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
            self._ending.fail(error)
        finally:
            if self._ticker is not None:
                self._ticker.stop()
            self._ending.finish()

    def _read_history(self) -> None:
        """Run the epochs of history; Spark's first batch waits for them, if there is one."""
        while self._is_behind and not self._ending.begun:
            if not self._spark.isActive and not used_up(self._spark):
                # Somebody has stopped it from outside.
                return
            self._if_free(self._next_of_history, timeout=-1)

    def _next_of_history(self) -> None:
        if self._backfilling is not None and not self._ending.begun:
            self._backfilling.step()

    @property
    def _is_behind(self) -> bool:
        return self._backfilling is not None and not self._backfilling.is_over

    def _until_spark_ends(self) -> None:
        try:
            while not self._spark.awaitTermination(SETTLING):
                # Commits that have failed must not wait for the next epoch, which may be far away.
                self._if_free(self._settle)
                if self._engine.is_over and not self._ending.begun:
                    self.stop()
                if self._executors is not None and self._turn.is_taken:
                    self._executors.look()
        except Exception as error:
            if self._ending.stopping:
                # Spark interrupts its thread wherever it is, for example in a source; it is never in an epoch then.
                logger.warning("Spark's query failed while it was being stopped", exc_info=True)
            elif self._ending.failure is None:
                self._ending.fail(error)

    def _close_windows(self) -> None:
        if used_up(self._spark):
            self._engine.close_windows()
        else:
            logger.warning("it was stopped from outside before its end; windows stay open")

    def _if_free(self, work: Callable[[], None], timeout: float = 0) -> None:
        """Do something between two epochs, unless an epoch is running, which does the same. Errors end the query."""
        if self._turn.take(timeout=timeout):
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - kept: exception() and awaitTermination() raise it
                self._fail(error)
            finally:
                self._turn.give_back()

    def _tick(self) -> None:
        """Run an epoch without a batch if the clock makes one due; the caller must have the turn."""
        if self._ending.begun or self._is_behind or not self._spark.isActive:
            return
        newest = newest_progress(self._spark)
        if newest is None:
            # Spark has not looked at the sources yet: rows that have accumulated there must not find their windows
            # closed.
            return
        try:
            self._engine.tick(self._engine.caught_up(newest, in_batch=False))
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._fail(error)

    def _settle(self) -> None:
        """Attend to decided transactions, and learn of a switch; the caller must have the turn."""
        try:
            self._engine.settle(last=False)
            newest = newest_progress(self._spark) if self._engine.is_held else None
            if newest is not None and not self._ending.begun and not self._is_behind:
                # As for a tick, not before Spark has looked at the sources.
                self._engine.release(self._engine.caught_up(newest, in_batch=False))
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._fail(error)

    def _publish(self) -> None:
        """Publish what waits for more epochs; the caller must have the turn."""
        try:
            self._engine.publish()
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._fail(error)

    def _join(self) -> None:
        """Wait for the end of the last epoch, whose failure must not be left until the next one; in a turn."""
        try:
            self._engine.join()
        except BaseException as error:  # noqa: BLE001 - kept for the user
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the query with an error between two batches; the caller must have the turn."""
        self._ending.fail(error)
        try:
            fail_at_stop(self._spark, self._engine.session, self._ending.failure or error)
        except Exception:  # it is stopped in any case, and the user of this query is told
            logger.warning("Spark's query could not be told of the failure", exc_info=True)
        self._stop_spark()

    def _stop_between_epochs(self) -> None:
        with self._turn:
            if not self._ending.finished:
                self._join()
                self._stop_spark()

    def _stop_spark(self) -> None:
        """End Spark's query; only between epochs, as Spark would interrupt an epoch in the middle."""
        try:
            self._spark.stop()
        except Exception:  # the supervisor waits for Spark's query in any case, and learns how it ends
            logger.warning("Spark's query could not be stopped at once", exc_info=True)
