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
    """One process; the time of its start tells it from a later one with its number."""

    pid: int
    parent: int
    started: int

    @property
    def lives(self) -> bool:
        """Whether it has not ended; its parent may have, so that another one has adopted it."""
        now = _look(self.pid)
        return now is not None and now.started == self.started

    @property
    def command(self) -> str:
        """Its command line; nothing once it has ended."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return ""

    def send(self, sign: signal.Signals) -> None:
        """Send a signal, if it still lives."""
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
    """A server with all that works for it."""
    own = _look(pid)
    assert own is not None
    return [own, *below(pid)]


def send(processes: Iterable[Process], sign: signal.Signals) -> None:
    """Send a signal to all that live."""
    for process in processes:
        process.send(sign)


def _look(pid: int) -> Process | None:
    """A process that has not ended."""
    try:
        # After the name, which may hold anything: state, parent …, and as the twentieth the time of the start.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else Process(pid, int(fields[1]), int(fields[19]))
