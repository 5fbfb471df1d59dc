"""A standalone cluster with its home on HDFS: executors, workers, master and driver are killed, and nothing changes."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.cluster.runs import Run
from tests.servers.spark import CORES, SparkCluster

if TYPE_CHECKING:
    from tests.servers.hdfs import HdfsServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
CORES_MAX = 2 * CORES
logger = logging.getLogger("tests.cluster")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of which each worker sees an empty one of its own."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def cluster(private: Path) -> Iterator[SparkCluster]:
    with SparkCluster(private) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: SparkCluster, hdfs: HdfsServer, private: Path, tmp_path: Path) -> Iterator[Run]:
    yield Run(cluster, tmp_path, private, f"{hdfs.uri}/{uuid4().hex}", batches=6)
    # Whatever the test has killed.
    cluster.wait_for_workers()


def kill_one(cluster: SparkCluster) -> None:
    os.kill(min(cluster.executors()), signal.SIGKILL)


def kill_all(cluster: SparkCluster) -> None:
    for pid in cluster.executors():
        os.kill(pid, signal.SIGKILL)


def kill_a_worker(cluster: SparkCluster) -> None:
    cluster.replace_worker(0)


def kill_the_master(cluster: SparkCluster) -> None:
    cluster.master.kill()


FAULTS: dict[str, Callable[[SparkCluster], None]] = {
    "an executor": kill_one,
    "all executors": kill_all,
    "a worker": kill_a_worker,
}


def test_executors_and_the_driver_are_killed(cluster: SparkCluster, run: Run) -> None:
    """One query: an executor, all of them, the driver, which goes on with other local directories."""
    first = {
        ("save", 2): lambda: kill_one(cluster),
        ("aggregate", 3): lambda: kill_all(cluster),
        ("decide", 4): lambda: "the driver",
    }
    settings = {"spark.cores.max": str(CORES_MAX)}
    assert run.drive(first, settings) == -signal.SIGKILL
    assert run.drive({}, settings) == 0
    run.check()
    told = run.log.read_text()
    assert "restoring it" in told
    assert "lineage has been truncated" not in told
    # Not the two that Spark counts before an executor has registered.
    assert run.partitions == CORES_MAX


@pytest.mark.long
@pytest.mark.parametrize("phase", ["aggregate", "advance", "save", "prepare", "decide", "commit", "clean"])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_at_each_phase(cluster: SparkCluster, run: Run, fault: str, phase: str) -> None:
    assert run.drive({(phase, 3): lambda: FAULTS[fault](cluster)}) == 0
    run.check()
    logger.info("%s at %s: the longest epoch took %.1f s", fault, phase, run.pauses[0])


@pytest.mark.long
def test_the_master(cluster: SparkCluster, run: Run) -> None:
    """Epochs go on without a master; it comes back, knows the application, and replaces an executor."""
    faults = {
        ("save", 2): lambda: kill_the_master(cluster),
        ("save", 4): cluster.restart_master,
        ("save", 5): lambda: kill_one(cluster),
    }
    assert run.drive(faults) == 0
    run.check()
    logger.info("master: the longest epoch took %.1f s", run.pauses[0])


@pytest.mark.long
@pytest.mark.parametrize("phase", ["save", "decide", "commit"])
def test_the_driver(run: Run, phase: str) -> None:
    assert run.drive({(phase, 3): lambda: "the driver"}) == -signal.SIGKILL
    assert run.drive({(phase, 4): lambda: "the driver"}) == -signal.SIGKILL
    assert run.drive({}) == 0
    run.check()
