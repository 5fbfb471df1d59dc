"""A private standalone cluster of Spark on the loopback address: a master and workers from PySpark's own jars."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from typing_extensions import Self

from tests.servers.programs import SMALL, Program, free_port

NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
"""Starts a program with mounts of its own."""
SPARK_HOME = Path(pyspark.__file__).parent
CORES = 2
"""Cores of each worker."""
ALL_CORES = 2 * CORES
_HERE = "127.0.0.1"
_HIDE = 'mount -t tmpfs tmpfs "$0" && cd "$0" && exec "$@"'


def elsewhere(hidden: Path, command: Sequence[str]) -> list[str]:
    """A command as another machine would run it, as far as one directory goes: it is empty, and where it starts."""
    return [*NAMESPACE, "sh", "-c", _HIDE, str(hidden), *command]


class SparkCluster:
    """A master and two workers, each its own machine as far as one directory goes; leaves nothing behind.

    Args:
        hidden: That directory.
        python: The executors' Python.
        remembers: Whether a master that is started again knows its workers and applications.
    """

    def __init__(self, hidden: Path, python: str = sys.executable, *, remembers: bool = True) -> None:
        self._hidden, self._home = hidden, Path(tempfile.mkdtemp(prefix="sparkjet-spark-"))
        self._port, self._status = free_port(), free_port()
        self.url = f"spark://{_HERE}:{self._port}"
        inherited = {name: value for name, value in os.environ.items() if "SPARK" not in name and name != "PYTHONPATH"}
        recovery = ["-Dspark.deploy.recoveryMode=FILESYSTEM", f"-Dspark.deploy.recoveryDirectory={self._home}/recovery"]
        self._environment = {
            **inherited,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": _HERE,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([*SMALL, *(recovery if remembers else [])]),
            "PYSPARK_PYTHON": python,
        }
        self.master = self._program("master.Master", "--port", str(self._port), "--webui-port", str(self._status))
        self.workers = [self._worker(number) for number in range(2)]

    def __enter__(self) -> Self:
        try:
            self.master.start()
            # Side by side: each takes seconds to start.
            for worker in self.workers:
                worker.launch()
            self.wait_for_workers()
        except BaseException:
            # What has started would outlive the test.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        left = self.executors()
        for program in (*self.workers, self.master):
            program.kill()
        kill(left)
        shutil.rmtree(self._home, ignore_errors=True)

    def wait_for_workers(self) -> None:
        """Wait until the master knows as many live workers as there are."""
        self.master.wait(lambda: self._state().get("aliveworkers") == len(self.workers), "the workers to register")

    def executors(self) -> list[int]:
        """Process ids of the executors, below the workers that run."""
        workers = {worker.pid for worker in self.workers if worker.runs}
        return [pid for pid in children(workers) if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def replace_workers(self, *numbers: int) -> None:
        """Kill workers and start others; their executors notice and end themselves."""
        for number in numbers:
            self.workers[number].kill()
        for number in numbers:
            self.workers[number] = self._worker(len(list(self._home.glob("worker*.log"))))
            self.workers[number].launch()

    def _worker(self, number: int) -> Program:
        work = self._home / f"work{number}"
        options = ["--cores", str(CORES), "--memory", "1g", "--work-dir", str(work), "--webui-port", "0", self.url]
        # A separate host: Spark runs no second attempt of a task on the host of the first.
        host = f"127.0.0.{number + 1}"
        return self._program("worker.Worker", *options, log=f"worker{number}", mounts=True, host=host)

    def _program(
        self, main: str, *options: str, log: str = "master", mounts: bool = False, host: str = _HERE
    ) -> Program:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", host]
        command = [*command, *options]
        log_file = self._home / f"{log}.log"
        log_file.touch()
        started = elsewhere(self._hidden, command) if mounts else command
        return Program(started, log_file, lambda: bool(self._state()), self._environment)

    def _state(self) -> dict[str, Any]:
        """The master's status; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{_HERE}:{self._status}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (OSError, ValueError, urllib.error.URLError):
            return {}


def children(parents: set[int]) -> list[int]:
    """Process ids of the descendants of some processes."""
    by_parent: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            by_parent.setdefault(parent, []).append(int(process.name))
    found, pending = [], list(parents)
    while pending:
        below = by_parent.get(pending.pop(), [])
        found += below
        pending += below
    return found


def kill(pids: Sequence[int]) -> None:
    """End processes that a cluster has started, if they still run."""
    for pid in pids:
        if b"CoarseGrainedExecutorBackend" in _command(pid):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
