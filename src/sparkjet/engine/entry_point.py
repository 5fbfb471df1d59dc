"""The entry point: the function that Spark calls with each micro-batch, for as long as the query runs."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Any

from sparkjet.engine.batch_runner import FailedError
from sparkjet.java import GONE, connection_to_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.engine.batch_runner import BatchRunner


class EntryPoint:
    """The function given to Spark's ``foreachBatch``; passes batches to a batch runner until it is closed.

    Spark's query refers to it through the JVM, for as long as anything refers to Spark's query; and that may be
    anything to which the runner refers: the engine, a user's function. No garbage collector sees the whole cycle. So
    this object drops the runner when the query has ended; and a batch's error, whose traceback refers to the runner, is
    passed to Spark as text.
    """

    def __init__(self, runner: BatchRunner) -> None:
        self._runner: BatchRunner | None = runner
        self._connection: Any = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Run a batch; called by Spark in the query's thread."""
        failure = self._failure_of(batch, batch_id)
        if failure is not None:
            raise FailedError(failure)

    def close(self) -> None:
        """Drop the runner, and close the connection by which Spark's thread has called; that thread has ended.

        Spark never closes it: each query would leave behind a thread here, and a socket on both sides.
        """
        self._runner = None
        if self._connection is not None:
            # If the JVM is gone, so is its end, and that closes ours.
            with contextlib.suppress(*GONE):
                self._connection.shutdown()
            self._connection = None

    def _failure_of(self, batch: DataFrame, batch_id: int) -> str | None:
        if self._runner is None:
            return f"Batch {batch_id} is not run: the query has ended."
        if self._connection is None:
            self._connection = connection_to_python(batch.sparkSession)
        try:
            self._runner.run(batch, batch_id)
        except BaseException as error:  # noqa: BLE001 - the runner has kept it, and Spark gets its text
            return "".join(traceback.format_exception(error))
        return None
