"""Dynamic allocation and speculation: tasks run twice and executors come and go, and nothing changes."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from tests.faults.waiting import holds_within, until

if TYPE_CHECKING:
    from tests.cluster.runs import Run
    from tests.servers.spark import SparkCluster

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(900)]
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
}
SPECULATION = {
    "spark.speculation": "true",
    # A second attempt of whatever has not ended when a tenth of the tasks has.
    "spark.speculation.interval": "10ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
    "spark.speculation.efficiency.enabled": "false",
    # Of a task that has no other to be compared with.
    "spark.speculation.task.duration.threshold": "1s",
}
QUIET = 20.0
"""Seconds without a task, of many times those after which Spark releases an executor."""
STILL = 8.0
"""Seconds."""
logger = logging.getLogger("tests.cluster")


def test_speculative_attempts_write_to_s3(cluster: SparkCluster, on_s3: Run) -> None:
    """Of many tasks two attempts run; twice an executor stands still for seconds, and goes on with tasks long done."""

    def pause() -> None:
        still = min(cluster.executors())
        os.kill(still, signal.SIGSTOP)
        threading.Timer(STILL, lambda: os.kill(still, signal.SIGCONT)).start()

    on_s3.settings.update(DYNAMIC | SPECULATION)
    assert on_s3.drive({("begin", 3): pause, ("advance", 4): pause}) == 0
    on_s3.check()
    assert on_s3.beaten > 0
    logger.warning("%d attempts were beaten, the longest epoch took %.1f s", on_s3.beaten, on_s3.pauses[0])


def test_executors_with_state_are_kept(cluster: SparkCluster, run: Run) -> None:
    def be_quiet() -> None:
        # One without any may go.
        assert cluster.executors()
        assert not holds_within(lambda: not cluster.executors(), QUIET)

    run.settings.update(DYNAMIC)
    assert run.drive({("clean", 3): be_quiet}) == 0
    run.check()
    # None comes before there is a task.
    assert "no executor has registered" not in run.log
    assert "restoring it" not in run.log


def test_a_timeout_releases_them_and_one_restore_follows(cluster: SparkCluster, run: Run) -> None:
    def be_quiet() -> None:
        until(lambda: not cluster.executors(), "the release of the executors", 120)

    run.settings.update(DYNAMIC | {"spark.dynamicAllocation.shuffleTracking.timeout": "3s"})
    run.settings.update({"spark.dynamicAllocation.cachedExecutorIdleTimeout": "3s"})
    assert run.drive({("clean", 3): be_quiet}) == 0
    run.check()
    assert run.log.count("restoring it") == 1
    logger.warning("released while quiet: the epoch with the restore took %.1f s", run.pauses[0])
