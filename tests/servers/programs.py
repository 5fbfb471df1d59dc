"""Parts of the servers of tests: jars from Maven, ports, and processes that are ended by their id."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TARGET = Path(__file__).with_name("target")
"""Where jars and programs are kept, once for all runs."""
PATIENCE = 240.0
"""Seconds to wait for a server; far more than any needs on its own machine (HDFS: eight)."""
ARCHIVE = [f"-XX:SharedArchiveFile={Path(sys.prefix) / 'classes.jsa'}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
"""Options with which Spark's JVMs start in half the time: its classes come from scripts/class_archive.py.

A JVM that the archive does not fit, or that finds none, starts as always.
"""
ROOM = ["-XX:ReservedCodeCacheSize=256m", "-XX:MetaspaceSize=256m"]
"""For code and classes: 48 MB of code were full after some twenty queries; and Java would collect the whole heap each
time that classes exceed 21 MB, 35, and so on."""
SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *ROOM, *ARCHIVE]
"""Options of short-lived JVMs: the optimising compiler and several collectors would cost more than they save."""


class NoProgramError(Exception):
    """This machine has no program for a server that tests start."""


def java(program: str = "java") -> str:
    """A program of the Java that Spark uses as well."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{program}" if home else program


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def jars(pom: Path, folder: Path = TARGET) -> Path:
    """The directory of the jars that a POM names; the first call loads them through Maven.

    Raises:
        NoProgramError: Saying what to install.
    """
    remedy = "Java 17, and Maven with a repository to load its jars from (apt-get install maven)"
    found = folder / f"{pom.stem}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if found.is_dir():
        return found
    missing = [program for program in ("mvn", java()) if shutil.which(program) is None]
    if missing:
        raise NoProgramError(f"no {' and no '.join(missing)} to start {pom.stem} with: {remedy}")

    def load(into: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(pom), f"-Djars={into}", "package"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise NoProgramError(f"Maven cannot load the jars of {pom.stem}: {remedy}. It said: {done.stdout[-1000:]}")

    loaded(found, load)
    return found


def loaded(found: Path, load: Callable[[Path], None]) -> None:
    """Fill a directory, and give it its name when it is complete: a download that was cut short is not used."""
    found.parent.mkdir(exist_ok=True)
    loading = Path(tempfile.mkdtemp(dir=found.parent))
    try:
        load(loading)
        loading.rename(found)
    except OSError:  # another test run was faster
        if not found.is_dir():
            raise
    finally:
        shutil.rmtree(loading, ignore_errors=True)


class Program:
    """A process with a log, started, killed and started again.

    Args:
        command: Program and arguments.
        log: The file that it writes to.
        answers: Whether it can be used.
        environment: Its environment; this process's by default.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        answers: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._log, self._answers, self._environment = list(command), log, answers, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has been started and not ended since."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it without waiting."""
        command = self._command
        if shutil.which("setpriv"):
            # A test run that is killed takes its servers with it.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment
            )

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        self.wait(self._answers, "it to answer")

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._process = None

    def kill(self) -> None:
        """End it as a power cut of its process would."""
        if self._process is not None and self.runs:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)
        self._process = None

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fails with the process's log."""
        pause = threading.Event()
        deadline = time.monotonic() + PATIENCE
        while not condition():
            message = f"waited for {what}:\n{self._log.read_text(errors='replace')[-3000:]}"
            assert self.runs, message
            assert time.monotonic() < deadline, message
            pause.wait(0.05)


def listens(port: int) -> bool:
    """Whether a port takes connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
