"""Background work: calls that must not delay the end of a process, and loops that survive failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from sparkjet_grid.log import logger

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN = 1.0
"""Seconds after which a failed step is repeated."""
_TELLS = 60.0
"""Seconds after which a persistent failure is logged again."""


def in_context(work: Callable[P, T]) -> Callable[P, T]:
    """Wrap work for the threads of a pool, so that their log lines name the query that it is done for."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # A copy for each call: two threads cannot enter one context at the same time.
        return context.copy().run(work, *args, **kwargs)

    return run


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """Start work in a daemon thread, which does not delay the end of the process.

    A call to a member that is paused, or whose machine is gone, lasts until its deadline: Flight cannot cancel it.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - the caller gets it from the future
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return future


class Loop:
    """Repeats a step in a separate thread, even if the step fails.

    A failed step is logged with its cause and repeated after a pause. If the member ended instead, its data would be
    lost, and with a shared cause, such as a full disk, that of all members; if only the thread ended, the member would
    look alive while doing half of its work.

    Args:
        name: Of the thread.
        step: Called repeatedly; it does its own waiting.
        again: Seconds after which a failed step is repeated.
    """

    def __init__(self, name: str, step: Callable[[], None], again: float = _AGAIN) -> None:
        self._name, self._step, self._again = name, step, again
        self._stopped = threading.Event()
        self._told = ("", 0.0)

    def start(self) -> None:
        """Start the thread."""
        LoopThread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Start no further step."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait within a step, for some time or until the loop is stopped."""
        self._stopped.wait(seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether the loop has been stopped."""
        return self._stopped.is_set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - it is logged; the class says why it goes on
                self._tell(error)
                self._stopped.wait(self._again)

    def _tell(self, error: Exception) -> None:
        if self._stopped.is_set():
            # What the last step uses may have been closed by then.
            logger.debug("%s was stopped in a step", self._name, exc_info=error)
            return
        cause, now = repr(error), time.monotonic()
        if self._told[0] != cause or now > self._told[1] + _TELLS:
            self._told = cause, now
            logger.error("%s has failed, and goes on: %s", self._name, error, exc_info=error)


class LoopThread(threading.Thread):
    """The thread of a :class:`Loop`; for a thread of any other kind, a test demands to know what its failure means."""
