"""The batch runner: what happens to each of Spark's micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.catalyst.micro_batch import with_plan
from sparkjet.engine.progress import newest_progress
from sparkjet.errors import SparkjetError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.backfilling import Backfilling
    from sparkjet.engine.ending import Ending
    from sparkjet.engine.engine import Engine

POLLING = 0.05
"""Seconds between two checks whether a batch that Spark has planned may run."""


class FailedError(SparkjetError):
    """A batch has failed, or is not run as the query has failed before it; Spark ends its query with this error."""

    condition = "SPARKJET_BATCH_FAILED"


class BatchRunner:
    """Runs each micro-batch as one epoch, or leaves it to the next run if the query is ending.

    It exists before Spark's query, which may run its first batch before its ``start`` has returned.

    Args:
        engine: The engine.
        ending: The end of the query.
        spark: Spark's query, once its ``start`` has returned it.
        backfilling: The epochs before the stream, if there are any.
    """

    def __init__(
        self, engine: Engine, ending: Ending, spark: Future[SparkQuery], backfilling: Backfilling | None = None
    ) -> None:
        self._backfilling = backfilling
        self._engine = engine
        self._ending = ending
        self._spark = spark

    def run(self, batch: DataFrame, batch_id: int) -> None:
        """Run a batch; see :class:`sparkjet.engine.entry_point.EntryPoint`."""
        turn = self._engine.turn
        while not (self._comes_next and turn.take(timeout=POLLING)):
            if self._ending.begun or (not self._comes_next and self._is_stopped):
                break
            if not self._comes_next:
                self._ending.wait(POLLING)
        else:
            try:
                if not self._ending.begun:
                    newest = None
                    if self._spark.done():
                        query = self._spark.result()
                        newest, batch = newest_progress(query), with_plan(batch, query)
                    self._engine.run_batch(batch, batch_id, self._engine.caught_up(newest, in_batch=True))
                    return
            except BaseException as error:
                self._ending.fail(error)
                raise
            finally:
                turn.give_back()
        self._refuse(batch_id)

    @property
    def _comes_next(self) -> bool:
        """Whether no history comes before the batch."""
        return self._backfilling is None or self._backfilling.is_over

    @property
    def _is_stopped(self) -> bool:
        """Whether somebody has stopped Spark's query, and is waiting for its batch to return."""
        return self._spark.done() and not self._spark.result().isActive

    def _refuse(self, batch_id: int) -> None:
        """Leave a batch that Spark has planned to the next run.

        Spark takes an error for a failure of the query, and a return for a batch that is done, which it may note even
        after it was stopped. But once stopped, it plans no other batch and does not commit this one to its source.
        """
        while self._ending.failure is None and self._spark.result().isActive:
            self._ending.wait(POLLING)
        if self._ending.failure is not None:
            raise FailedError(f"Batch {batch_id} is not run: the query has failed.") from self._ending.failure
        try:
            self._engine.refuse(batch_id)
        except BaseException as error:
            self._ending.fail(error)
            raise
