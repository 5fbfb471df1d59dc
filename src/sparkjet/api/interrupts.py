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
from weakref import WeakKeyDictionary

from pyspark import SparkContext

from sparkjet.java import GONE

if TYPE_CHECKING:
    from sparkjet.engine.supervisor import Supervisor

_PYSPARK = "pyspark.core.context"


class Interrupts:
    """The effect of Ctrl-C while queries of this process run; thread-safe.

    The main thread gets its KeyboardInterrupt, as always. PySpark's handler would also cancel all jobs, including those
    of epochs, and so end the queries with errors. A script that does not catch the exception ends: its queries are
    stopped after their epochs first, as the JVM would print a stack trace for each one that still runs. A notebook or a
    shell continues, and so do its queries.
    """

    def __init__(self) -> None:
        # Weak references: as long as a query runs, its thread holds the supervisor.
        self._names: WeakKeyDictionary[Supervisor, str] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._installed = False
        self._excepthook = sys.excepthook

    def add(self, name: str, supervisor: Supervisor) -> None:
        """Watch a query until it has ended.

        Args:
            name: Its name in the line; queries of two sessions may have the same one.
            supervisor: Ends it.
        """
        with self._lock:
            self._names[supervisor] = name
            if not self._installed:
                self._installed = True
                # Once: a hook that somebody puts in front of ours calls ours, and must not be called by it.
                self._excepthook, sys.excepthook = sys.excepthook, self.on_uncaught
        if threading.current_thread() is threading.main_thread():
            self._replace_handler()

    def on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Handle an exception that nobody has caught, as Python's last step."""
        running = self._active()
        if not running or not issubclass(kind, KeyboardInterrupt) or _has_prompt():
            self._excepthook(kind, error, trace)
            return
        names = ", ".join(running.values())
        says = f"query {names} stops when its epoch has ended (Ctrl-C again ends it at once)"
        if len(running) > 1:
            says = f"queries {names} stop when their epochs have ended (Ctrl-C again ends them at once)"
        try:
            # There may be no reader: a service has no stderr, and Ctrl-C also ends the tee into which it is piped.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(f"sparkjet: interrupted; {says}.\n")
                sys.stderr.flush()
            _in_thread(_only_errors)
            for supervisor in running:
                supervisor.stop()
            for supervisor in running:
                supervisor.ending.wait()
        except KeyboardInterrupt:
            _end_at_once()

    def _active(self) -> dict[Supervisor, str]:
        # Without the lock, which the thread interrupted by the signal may hold; another thread may add a query in the
        # meantime.
        found = [reference() for reference in self._names.keyrefs()]
        return {each: self._names[each] for each in found if each is not None and not each.ending.finished}

    def _replace_handler(self) -> None:
        before: Any = signal.getsignal(signal.SIGINT)
        # A user's handler is left alone.
        if getattr(before, "__module__", None) != _PYSPARK:
            return

        def handle(number: int, frame: Any) -> None:
            if self._active():
                raise KeyboardInterrupt
            before(number, frame)

        signal.signal(signal.SIGINT, handle)


def _has_prompt() -> bool:
    """Whether Python continues after an exception, as in the shells of Python and Spark, or with ``python -i``."""
    return hasattr(sys, "ps1") or bool(sys.flags.inspect)


def _in_thread(call: Callable[[], None]) -> None:
    """Call the JVM from a new thread; the main thread may have been interrupted while waiting for an answer."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()


def _only_errors() -> None:
    """Keep Spark from warning, with stack traces, that it interrupts threads of the queries that are being stopped."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark's handler of Ctrl-C has it too
    # If the JVM is gone, so is its log.
    if context is not None:
        with contextlib.suppress(*GONE):
            context.setLogLevel("ERROR")


def _end_at_once() -> None:
    """End this process and its JVM, which would report what it was doing; like a crash, this loses nothing."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
    os._exit(128 + signal.SIGINT)


INTERRUPTS = Interrupts()
"""The interrupts of this process."""
