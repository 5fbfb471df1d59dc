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
from typing import TYPE_CHECKING
from uuid import uuid4

import duckdb

from conftest import INTERPRETED
from tests.feed import START, Feed

if TYPE_CHECKING:
    from tests.servers.spark import SparkCluster

ROOT = Path(__file__).parents[2]
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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
    """One query from its first start to its end, through any number of drivers.

    Args:
        cluster: Where it runs.
        place: A directory that driver and executors share: input and output.
        private: A directory that they do not: temporary files and Spark's own.
        home: ``checkpointLocation``.
        batches: The length of the input.
    """

    def __init__(self, cluster: SparkCluster, place: Path, private: Path, home: str, batches: int) -> None:
        self._cluster, self._place, self._private, self._home = cluster, place, private, home
        self.rows = fill(Feed(place / "in"), batches)
        self.log = place / "driver.log"
        self.pauses: list[float] = []
        """Seconds of the longest stretch of each driver without the end of an epoch."""
        self.partitions: int | None = None

    def drive(self, faults: Mapping[At, Callable[[], object]], settings: Mapping[str, str] | None = None) -> int:
        """Run a driver with local directories of its own, with a fault at the end of some phases.

        A fault returns anything but None to have the driver killed. Returns how the driver ended.
        """
        local = self._private / uuid4().hex
        local.mkdir()
        job = {
            "master": self._cluster.url,
            "feed": str(self._place / "in"),
            "home": self._home,
            **{name: str(self._place / name) for name in ("out", "late")},
            "settings": {**SETTINGS, "spark.local.dir": str(local), **(settings or {})},
        }
        command = [sys.executable, "-m", "tests.cluster.standalone", json.dumps(job)]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(local), "SPARK_LOCAL_IP": "127.0.0.1"}
        due, ended = dict(faults), [time.monotonic()]
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                command, cwd=local, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            ) as driver,
        ):  # fmt: skip
            assert driver.stdin is not None
            assert driver.stdout is not None
            try:
                for line in driver.stdout:
                    name, number = json.loads(line)
                    if name == "partitions":
                        self.partitions = number
                        continue
                    if name == "clean":
                        ended.append(time.monotonic())
                    fault = due.pop((name, number), None)
                    if fault is not None and fault() is not None:
                        break
                    driver.stdin.write("\n")
                    driver.stdin.flush()
                else:
                    driver.wait()
            finally:
                if driver.poll() is None:
                    # Its JVM as well, which would otherwise end in an orderly way.
                    os.killpg(driver.pid, signal.SIGKILL)
        assert due == {}, self._told()
        assert driver.returncode in {0, -signal.SIGKILL}, self._told()
        # Without the first epoch, before which nothing has been warmed up.
        self.pauses.append(max((later - before for before, later in itertools.pairwise(ended[1:])), default=0))
        return driver.returncode

    def check(self) -> None:
        """The results are those of the naive reference, and nothing was late."""
        start = f'epoch("window".start)::long - {START}'
        query = f"""SELECT {start}, k, n, "sum(v)" FROM read_parquet('{self._place / "out"}/part-*')"""
        with duckdb.connect() as db:
            assert Counter(db.execute(query).fetchall()) == windows_of(self.rows)
        assert list((self._place / "late").glob("part-*")) == []

    def _told(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]
