"""Processes below one that a test started: executors of a driver, backends of a server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process; its start time distinguishes it from a later one with the same pid."""

    pid: int
    parent: int
    started: int

    @property
    def lives(self) -> bool:
        """Whether it is still running, possibly adopted by another process if its parent has ended."""
        now = _look(self.pid)
        return now is not None and now.started == self.started

    @property
    def command(self) -> str:
        """Its command line; empty once it has ended."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""

    def send(self, sign: signal.Signals) -> None:
        """Send a signal, if it is still running."""
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sign)


def below(pid: int) -> list[Process]:
    """All processes below one."""
    every = [found for path in Path("/proc").iterdir() if path.name.isdecimal() and (found := _look(int(path.name)))]
    known, found = {pid}, []
    while more := [process for process in every if process.parent in known and process.pid not in known]:
        known |= {process.pid for process in more}
        found += more
    return found


def executors(jvm: int) -> list[Process]:
    """The executors of a driver on a local cluster."""
    return [process for process in below(jvm) if "CoarseGrainedExecutorBackend" in process.command]


def server(pid: int) -> list[Process]:
    """A server with all its worker processes."""
    own = _look(pid)
    assert own is not None
    return [own, *below(pid)]


def send(processes: Iterable[Process], sign: signal.Signals) -> None:
    """Send a signal to all that are still running."""
    for process in processes:
        process.send(sign)


def _look(pid: int) -> Process | None:
    """A process that has not ended."""
    try:
        # After the name, which may contain anything: state, parent …, and as the twentieth field the start time.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else Process(pid, int(fields[1]), int(fields[19]))
