"""Feeding a run's history on the driver: the reports of epochs, and the rows that Spark's batches have read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.engine.progress import newest_progress, spark_progress
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.committer import Committer
    from sparkjet.engine.progress_report import ProgressReport
    from sparkjet.monitoring.runs import Run
    from sparkjet.monitoring.spark_metrics import SparkGauges


@dataclass
class Feed:
    """Feeds the history of a run; called by the thread that ends epochs.

    The epoch has ended: what cannot be shown of it is logged, and the query continues.

    Attributes:
        run: The run.
        gauges: Its gauges in Spark's metrics system.
        committer: Has the transactions that are decided and not committed.
        spark: Spark's query, None until it has started.
    """

    run: Run
    gauges: SparkGauges
    committer: Committer
    spark: SparkQuery | None = None
    _batch: int = -1

    def post(self, report: ProgressReport) -> None:
        """Add an epoch that has ended."""
        try:
            now = _now()
            self.run.waiting = _waiting(self.committer)
            self.run.history.add(report, now, self._rows_read())
            self.gauges.set(now)
        except Exception as error:  # noqa: BLE001 - whatever it is
            logger.warning("epoch %d is missing on the page, or in Spark's metrics: %s", report.epoch.number, error)

    def end(self, failure: BaseException | None) -> None:
        """Note that the run has ended, count the rows of its last batch, and release Spark's query."""
        try:
            self.run.history.totals.rows_in += self._rows_read()
        except Exception as error:  # noqa: BLE001 - whatever it is, above all a session that was stopped
            logger.debug("rows of the last batch are missing on the page: %s", error)
        self.spark = None
        if self.run.waiting is not None:
            # No longer the committer's: the run is kept, and what the query had is not.
            waiting = self.run.waiting()
            self.run.waiting = lambda: waiting
        self.run.end(_now(), failure)

    def _rows_read(self) -> int:
        """Rows of the batches that Spark has ended since the last call, without the one that is ending."""
        if self.spark is None:
            return 0
        newest = newest_progress(self.spark)
        if newest is None or newest["batchId"] <= self._batch:
            return 0
        # If epochs overlap, Spark may have ended two.
        unseen = [newest] if newest["batchId"] == self._batch + 1 else spark_progress(self.spark)
        rows = sum(each["numInputRows"] for each in unseen if self._batch < each["batchId"])
        # While nothing arrives, Spark reports the next batch, without rows: those are still to be counted.
        self._batch = newest["batchId"] - (0 if newest["numInputRows"] else 1)
        return int(rows)


def _waiting(committer: Committer) -> Callable[[], int]:
    """Counts what the epoch that has just ended could not commit, as long as that lasts; nothing of the next one."""
    tried = committer.overdue
    return lambda: sum(each in committer.unsettled for each in tried)


def _now() -> int:
    return time.time_ns() // 1000
