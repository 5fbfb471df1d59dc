"""A standalone cluster with its home in a store: executors, workers, master and driver are killed; nothing changes."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.state.partitions import LOST
from tests.cluster.runs import Run
from tests.faults.waiting import until
from tests.servers.programs import java
from tests.servers.spark import ALL_CORES, SparkCluster, children

if TYPE_CHECKING:
    from tests.servers.hdfs import HdfsServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
logger = logging.getLogger("tests.cluster")


def kill_one(cluster: SparkCluster) -> None:
    os.kill(min(cluster.executors()), signal.SIGKILL)


def kill_all(cluster: SparkCluster) -> None:
    for pid in cluster.executors():
        os.kill(pid, signal.SIGKILL)


def kill_a_worker(cluster: SparkCluster) -> None:
    cluster.replace_workers(0)


def kill_all_workers(cluster: SparkCluster) -> None:
    cluster.replace_workers(0, 1)


FAULTS: dict[str, Callable[[SparkCluster], None]] = {
    "an executor": kill_one,
    "all executors": kill_all,
    "a worker": kill_a_worker,
    "all workers": kill_all_workers,
}


def test_executors_and_the_driver_are_killed(cluster: SparkCluster, run: Run) -> None:
    """One query: an executor between two epochs, the driver, which goes on in other local directories, an executor."""
    first = {("clean", 2): lambda: kill_one(cluster), ("decide", 4): lambda: "the driver"}
    assert run.drive(first, noticed=("clean", 2)) == -signal.SIGKILL
    assert "restoring it" in run.log
    # It was noticed before a task failed.
    assert LOST not in run.log
    assert run.drive({("save", 5): lambda: kill_one(cluster)}) == 0
    run.check()
    assert "lineage has been truncated" not in run.log
    # Not the two that Spark counts before an executor has registered.
    assert run.partitions == ALL_CORES


@pytest.mark.long
@pytest.mark.parametrize("phase", ["aggregate", "advance", "save", "prepare", "decide", "commit", "clean"])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_at_each_phase(cluster: SparkCluster, run: Run, fault: str, phase: str) -> None:
    assert run.drive({(phase, 3): lambda: FAULTS[fault](cluster)}) == 0
    run.check()
    logger.warning("%s at %s: the longest epoch took %.1f s", fault, phase, run.pauses[0])


@pytest.mark.long
def test_the_master(cluster: SparkCluster, run: Run) -> None:
    """Epochs go on without a master; it comes back, knows the application, and replaces an executor."""
    faults = {
        ("save", 2): cluster.master.kill,
        ("save", 4): cluster.master.start,
        ("save", 5): lambda: kill_one(cluster),
    }
    assert run.drive(faults) == 0
    run.check()
    logger.warning("master: the longest epoch took %.1f s", run.pauses[0])


@pytest.mark.long
def test_a_master_that_forgets_takes_the_executors_away(hdfs: HdfsServer, private: Path, tmp_path: Path) -> None:
    """Spark's default: its workers end what it does not know, and the query waits until its driver is started again."""
    with SparkCluster(private, remembers=False) as cluster:
        run = Run(cluster, tmp_path, private, f"{hdfs.uri}/{uuid4().hex}")

        def come_back() -> None:
            cluster.master.start()
            until(lambda: not cluster.executors(), "the workers to end the executors")

        def stuck() -> None:
            until(lambda: "started again without spark.deploy.recoveryMode" in run.log, "the warning")

        assert run.drive({("save", 2): cluster.master.kill, ("save", 3): come_back}, stuck) == -signal.SIGKILL
        assert run.drive({}) == 0
        run.check()


@pytest.mark.long
@pytest.mark.parametrize("phase", ["save", "decide", "commit"])
def test_the_driver(run: Run, phase: str) -> None:
    assert run.drive({(phase, 3): lambda: "the driver"}) == -signal.SIGKILL
    assert run.drive({(phase, 4): lambda: "the driver"}) == -signal.SIGKILL
    assert run.drive({}) == 0
    run.check()


@pytest.mark.long
@pytest.mark.parametrize("phase", ["save", "decide", "commit"])
def test_the_driver_with_everything_on_s3(on_s3: Run, phase: str) -> None:
    assert on_s3.drive({(phase, 3): lambda: "the driver"}) == -signal.SIGKILL
    assert on_s3.drive({(phase, 4): lambda: "the driver"}) == -signal.SIGKILL
    assert on_s3.drive({}) == 0
    on_s3.check()


@pytest.mark.long
def test_java_goes_missing_on_one_machine(cluster: SparkCluster, run: Run) -> None:
    """Spark cannot start an executor there: the query goes on with those of the other machine."""
    machine, found = cluster.workers[0], shutil.which(java())
    assert found is not None
    place = Path(found).resolve().parents[1]

    def hide() -> None:
        inside = ["nsenter", "-m", "-t", str(machine.pid)]
        subprocess.run([*inside, "mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
        for pid in children({machine.pid}):
            os.kill(pid, signal.SIGKILL)

    assert run.drive({("save", 3): hide}) == 0
    run.check()
    # It has only lost its Java.
    assert machine.runs
    cluster.replace_workers(0)
