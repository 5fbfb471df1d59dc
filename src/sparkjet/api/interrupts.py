"""Ctrl-C: a script that is interrupted while queries run ends in good order, and says so in one line."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from sparkjet.java import GONE

if TYPE_CHECKING:
    from sparkjet.engine.ending import Ending
    from sparkjet.engine.supervisor import Supervisor

_PYSPARK = "pyspark.core.context"


class Interrupts:
    """What Ctrl-C does while queries of this process run; thread-safe.

    The main thread gets its KeyboardInterrupt, as always. PySpark's handler would also cancel all jobs, those of
    epochs too, and so end the queries with errors. A script that does not catch it ends: its queries are stopped after
    their epochs first, as the JVM would print a stack trace for each that still runs. A notebook goes on, and so do its
    queries.
    """

    def __init__(self) -> None:
        self._running: dict[str, tuple[Supervisor, Ending]] = {}
        self._lock = threading.Lock()
        self._excepthook = sys.excepthook

    def add(self, name: str, supervisor: Supervisor, ending: Ending) -> None:
        """Watch a query until it has ended.

        Args:
            name: What the line calls it; another one than those of all queries that run.
            supervisor: Ends it.
            ending: Its end.
        """
        with self._lock:
            self._running = {each: found for each, found in self._running.items() if not found[1].finished}
            self._running[name] = supervisor, ending
        if threading.current_thread() is threading.main_thread():
            self._replace_handler()
        if getattr(sys.excepthook, "__self__", None) is not self:
            self._excepthook = sys.excepthook
            sys.excepthook = self.on_uncaught

    def on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """What Python does at last with an exception that nobody has caught."""
        running = self._active()
        if not running or not issubclass(kind, KeyboardInterrupt):
            self._excepthook(kind, error, trace)
            return
        names = ", ".join(running)
        says = f"query {names} stops when its epoch has ended (Ctrl-C again ends it at once)"
        if len(running) > 1:
            says = f"queries {names} stop when their epochs have ended (Ctrl-C again ends them at once)"
        try:
            sys.stderr.write(f"sparkjet: interrupted; {says}.\n")
            sys.stderr.flush()
            _in_thread(_only_errors)
            for supervisor, _ in running.values():
                supervisor.stop()
            for _, ending in running.values():
                ending.wait()
        except KeyboardInterrupt:
            _end_at_once()

    def _active(self) -> dict[str, tuple[Supervisor, Ending]]:
        with self._lock:
            return {name: found for name, found in self._running.items() if not found[1].finished}

    def _replace_handler(self) -> None:
        before: Any = signal.getsignal(signal.SIGINT)
        # A handler of the user's is left alone.
        if getattr(before, "__module__", None) != _PYSPARK:
            return

        def handle(number: int, frame: Any) -> None:
            if self._active():
                raise KeyboardInterrupt
            before(number, frame)

        signal.signal(signal.SIGINT, handle)


def _in_thread(call: Callable[[], None]) -> None:
    """Call the JVM; in the main thread an answer may be under way that it was interrupted in waiting for."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()


def _only_errors() -> None:
    """Keep Spark from warning, with stack traces, that it interrupts threads of the queries that are stopped."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark's handler of Ctrl-C has it too
    # With the JVM, its log has gone.
    if context is not None:
        with contextlib.suppress(*GONE):
            context.setLogLevel("ERROR")


def _end_at_once() -> None:
    """End this process and its JVM, which would report what it was doing; like a crash, which loses nothing."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
    os._exit(128 + signal.SIGINT)


INTERRUPTS = Interrupts()
"""Those of this process."""
