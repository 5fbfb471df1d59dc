"""Processes of plain drivers, forked from one that has imported everything: a start takes milliseconds."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from typing_extensions import Self

from tests.protocol.driver import Orders, main

PATIENCE = 60.0
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.protocol.driver", "tests.protocol.kafka.driver"])


@dataclass
class Process:
    """One driver process; a context manager that leaves none behind."""

    orders: Orders
    body: Callable[[Orders, Connection], None] = main

    def __enter__(self) -> Self:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=self.body, args=(self.orders, theirs), daemon=True)
        self._process.start()
        theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(PATIENCE)
        self._pipe.close()

    def wait(self, patience: float = PATIENCE) -> tuple[Any, ...]:
        """Its next report: that it has stopped at its point, or how it ended."""
        assert self._pipe.poll(patience), f"no word from the driver of {self.orders}"
        report: tuple[Any, ...] = self._pipe.recv()
        return report

    def reached(self, point: str | None = None) -> None:
        """Wait until it has stopped at its point, or at the one that it was released to."""
        report = self.wait()
        assert report == ("reached", point or self.orders.stop_at), report

    def ended(self) -> str | None:
        """Wait for its end; returns the name of the error, None without one."""
        report = self.wait()
        assert report[0] == "ended", report
        self._process.join(PATIENCE)
        return report[1]  # type: ignore[no-any-return]

    def go_on(self, until: tuple[str, int] | None = None) -> None:
        """Release it from its point, to another one of this or a later epoch, or to its end."""
        self._pipe.send(until)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()
        self._process.join(PATIENCE)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)
