"""Starting, following and killing the drivers of the flights job (`flights_driver.py`), and those of the board."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]

Report = Callable[[str, int], None]
"""Called with a phase and an epoch; phases are those of `sj.EpochPhase`, plus `started`, `killed`, `finished`."""


class DriverError(Exception):
    """A driver failed without having been killed; the message names its log."""


@dataclass(frozen=True)
class Places:
    """Where everything of one run is."""

    root: Path

    @property
    def feed(self) -> Path:
        """Input: a Parquet file per micro-batch."""
        return self.root / "feed"

    @property
    def out(self) -> Path:
        """Results."""
        return self.root / "out"

    @property
    def late(self) -> Path:
        """Flights that came too late, and those without an event time."""
        return self.root / "late"

    def checkpoint(self, query: str) -> Path:
        """The home of a query's state."""
        return self.root / f"checkpoint-{query}"

    def log(self, query: str) -> Path:
        """The log of a query's drivers."""
        return self.root / f"{query}.log"


@dataclass
class Driver:
    """A running driver: a Python process and the JVM that it starts.

    Attributes:
        counts: What the driver has counted, once it has ended successfully.
        killed: Whether :meth:`kill` was called.
    """

    query: str
    places: Places
    process: subprocess.Popen[str]
    jvm: int | None = None
    killed: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def start(query: str, places: Places, module: str = "examples.flights_driver") -> Driver:
        """Start a driver of a query; it continues where the one before it stopped."""
        path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
        # SPARK_LOCAL_IP: where the machine's own name does not resolve, Spark could not bind.
        environment = {**os.environ, "PYTHONPATH": path, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-m", module, query, str(places.root)]
        with places.log(query).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                command, cwd=places.root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                text=True,
            )  # fmt: skip
        return Driver(query, places, process)

    def reports(self) -> Iterator[tuple[str, int]]:
        """The phases and epochs that the driver reaches. Ends when both processes have.

        Raises:
            DriverError: It ended badly without having been killed.
        """
        assert self.process.stdout is not None  # noqa: S101 - asked for in start
        # The JVM has inherited the pipe, so the pipe ends when both processes have.
        with self.process.stdout as lines:
            for line in lines:
                message = _message(line)
                self.jvm = message.get("jvm", self.jvm)
                self.counts = message.get("counts", self.counts)
                if "phase" in message:
                    yield message["phase"], message["epoch"]
        if self.process.wait() and not self.killed:
            log = self.places.log(self.query)
            raise DriverError(
                f"the driver of the {self.query} query ended with status {self.process.returncode}. "
                f"Its log is {log}; the last line: {_last_line(log)}"
            )

    def kill(self) -> None:
        """End both processes as a power cut would: SIGKILL, without a chance to clean up."""
        self.killed = True
        for pid in (self.process.pid, self.jvm):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def run(
    query: str,
    places: Places,
    report: Report,
    doomed: Callable[[str, int, int], bool],
    module: str = "examples.flights_driver",
) -> tuple[Driver, int]:
    """Run a query to its end, with a new driver after each one killed.

    Args:
        query: `sparkjet` or `spark`, or what else the drivers know.
        places: Where; the feed must be there.
        report: Called at every phase.
        doomed: Decides by phase, epoch and the number of drivers killed so far whether to kill this one there.
        module: The driver, which reports as `flights_driver.py` does.

    Returns:
        The last driver, and how many were killed before it.

    Raises:
        DriverError: A driver failed.
    """
    kills = epoch = 0
    while True:
        driver = Driver.start(query, places, module)
        report("started", epoch)
        try:
            for phase, epoch in driver.reports():
                report(phase, epoch)
                if not driver.killed and doomed(phase, epoch, kills):
                    driver.kill()
                    kills += 1
                    report("killed", epoch)
        finally:
            if driver.process.poll() is None:
                driver.kill()
        if not driver.killed:
            report("finished", epoch)
            return driver, kills


def never(phase: str, epoch: int, kills: int) -> bool:  # noqa: ARG001 - the shape of `doomed`
    """For drivers that are not killed."""
    return False


def _message(line: str) -> dict[str, Any]:
    """A line as the driver's JSON, empty if it is something else that was printed."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return {}


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "(empty)")
