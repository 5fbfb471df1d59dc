"""Runs of a query on a standalone cluster, with something killed at chosen phases, and what must come out."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from sparkjet import EpochPhase
from tests.cluster.standalone import NOTICED
from tests.feed import Feed
from tests.interpreting import INTERPRETED
from tests.servers.programs import SMALL
from tests.servers.spark import elsewhere

if TYPE_CHECKING:
    from tests.servers.spark import SparkCluster

ROOT = Path(__file__).parents[2]
SMALL_JVM = " ".join(SMALL)
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SMALL_JVM,
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.ui.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Each of a few epochs in each new JVM would compile its code, and no result depends on it.
    **INTERPRETED,
}
BATCHES = 5
PHASES = {phase.value for phase in EpochPhase}
At = tuple[str, int]
"""The end of a phase of an epoch."""


def fill(feed: Feed, batches: int) -> list[tuple[int, str, int]]:
    """Write batches of ten seconds each, some keys in all of them and some in one; returns their rows."""
    found = []
    for batch in range(batches):
        rows = [(10 * batch + second, "every" if second % 2 else f"only{batch}", batch) for second in range(10)]
        rows.append((10 * batch, "odd" if batch % 2 else "even", 1))
        feed.add(*({"t": t, "k": k, "v": v} for t, k, v in rows))
        found += rows
    return found


def windows_of(rows: list[tuple[int, str, int]]) -> Counter[tuple[int, str, int, int]]:
    """Start, key, count and sum of each window of 30 seconds every 10, computed row by row."""
    groups: dict[tuple[int, str], list[int]] = {}
    for t, k, v in rows:
        for start in (t // 10 * 10 - 20, t // 10 * 10 - 10, t // 10 * 10):
            groups.setdefault((start, k), []).append(v)
    return Counter((start, k, len(values), sum(values)) for (start, k), values in groups.items())


class Run:
    """One query from its first start to its end, through any number of drivers, each on its own machine.

    Args:
        cluster: Where it runs.
        place: A directory that driver and executors share: the input.
        private: A directory that they do not: temporary files and Spark's own.
        home: Where ``checkpointLocation`` and output are.
        settings: Of its sessions.
    """

    def __init__(
        self, cluster: SparkCluster, place: Path, private: Path, home: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._cluster, self._place, self._private, self._home = cluster, place, private, home
        local = {
            "spark.local.dir": str(private),
            "spark.driver.extraJavaOptions": f"{SMALL_JVM} -Djava.io.tmpdir={private}",
        }
        self.settings = {**SETTINGS, **local, **(settings or {})}
        self._told: dict[str, Any] = {}
        self.rows = fill(Feed(place / "in"), BATCHES)
        self.pauses: list[float] = []
        """Seconds of the longest stretch of each driver without the end of an epoch."""

    def drive(
        self,
        faults: Mapping[At, Callable[[], object]],
        until_killed: Callable[[], None] | None = None,
        noticed: At | None = None,
    ) -> int:
        """Run a driver with a fault at the end of some phases; returns how it ended.

        Args:
            faults: A fault returns anything but None to have the driver killed.
            until_killed: Waits for what the driver is killed at, whatever it does.
            noticed: The fault after which the driver goes on only when Spark knows that an executor is gone.
        """
        job = {
            "master": self._cluster.url,
            "feed": str(self._place / "in"),
            **{name: f"{self._home}/{name}" for name in ("home", "out")},
            "settings": self.settings,
        }
        command = elsewhere(self._private, [sys.executable, "-m", "tests.cluster.standalone", json.dumps(job)])
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(self._private), "SPARK_LOCAL_IP": "127.0.0.1"}
        due, ended = dict(faults), [time.monotonic()]
        with (
            self._log.open("ab") as log,
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            ) as driver,
        ):  # fmt: skip
            assert driver.stdin is not None
            assert driver.stdout is not None
            if until_killed is not None:
                Thread(target=_kill_after, args=(until_killed, driver.pid)).start()
            try:
                for line in driver.stdout:
                    name, value = json.loads(line)
                    if name not in PHASES:
                        self._told[name] = value
                        continue
                    if name == "clean":
                        ended.append(time.monotonic())
                    fault = due.pop((name, value), None)
                    if fault is not None and fault() is not None:
                        break
                    driver.stdin.write(f"{NOTICED}\n" if (name, value) == noticed else "\n")
                    driver.stdin.flush()
                else:
                    driver.wait()
            finally:
                if driver.poll() is None:
                    # Its JVM as well, which would otherwise end in an orderly way.
                    os.killpg(driver.pid, signal.SIGKILL)
        assert due == {}, self.log[-6000:]
        assert driver.returncode in {0, -signal.SIGKILL}, self.log[-6000:]
        # Without the first epoch, before which nothing has been warmed up.
        self.pauses.append(max((later - before for before, later in itertools.pairwise(ended[1:])), default=0))
        return driver.returncode

    def check(self) -> None:
        """The results are those of the naive reference, nothing was late, and no state is left."""
        assert Counter(map(tuple, self._told["windows"])) == windows_of(self.rows)
        assert self._told["late"] == 0
        assert self._told["snapshot"]["entries"] == 0

    @property
    def partitions(self) -> int:
        """How many partitions the state of the last driver had."""
        return int(self._told["snapshot"]["partitions"])

    @property
    def beaten(self) -> int:
        """How many tasks of the last driver were ended because another attempt was faster."""
        return int(self._told["beaten"])

    @property
    def log(self) -> str:
        """The drivers' logs."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._place / "driver.log"


def _kill_after(moment: Callable[[], None], pid: int) -> None:
    try:
        moment()
    finally:
        # Also if it never comes: the test would wait for the driver.
        os.killpg(pid, signal.SIGKILL)
