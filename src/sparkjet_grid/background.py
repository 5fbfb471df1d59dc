"""Background work: what must not hold up the end of a process, and loops that go on whatever happens in them."""

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
"""Seconds after which a step that has failed is begun again."""
_TELLS = 60.0
"""Seconds after which a failure that lasts is logged again."""


def in_context(work: Callable[P, T]) -> Callable[P, T]:
    """Some work for threads of a pool, which log as whoever has them work does: naming the query that it is for."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        # A copy for each call: two threads cannot be in one context at once.
        return context.copy().run(work, *args, **kwargs)

    return run


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """Begin some work in a thread of its own, which nobody waits for at the end of the process.

    A call to a member that is paused, or whose machine is gone, lasts until its deadline: Flight cannot end it before.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - whoever waits for the result gets it
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    return future


class Loop:
    """Does the same again and again, in a thread of its own, whatever happens in it.

    A step that raises is logged with its cause, and begun again after a pause. A member that ended instead would take
    with it what it holds, and where all share the cause, as a disk that is full, nobody would be left; one that lost
    the thread would look alive, and do only half of what it should.

    Args:
        name: Of the thread.
        step: What is done; it waits as long as it should.
        again: Seconds after which a step that has failed is begun again.
    """

    def __init__(self, name: str, step: Callable[[], None], again: float = _AGAIN) -> None:
        self._name, self._step, self._again = name, step, again
        self._stopped = threading.Event()
        self._told = ("", 0.0)

    def start(self) -> None:
        """Begin."""
        LoopThread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Begin no step any more."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait, in a step, for some time or for the end."""
        self._stopped.wait(seconds)

    @property
    def is_stopped(self) -> bool:
        """Whether there is no further step."""
        return self._stopped.is_set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - it is logged, and what follows from it is said above
                self._tell(error)
                self._stopped.wait(self._again)

    def _tell(self, error: Exception) -> None:
        if self._stopped.is_set():
            # Whoever stops a loop closes what its last step may still be using.
            logger.debug("%s was stopped in a step", self._name, exc_info=error)
            return
        cause, now = repr(error), time.monotonic()
        if self._told[0] != cause or now > self._told[1] + _TELLS:
            self._told = cause, now
            logger.error("%s has failed, and goes on: %s", self._name, error, exc_info=error)


class LoopThread(threading.Thread):
    """The thread of a :class:`Loop`: of a thread that is none of these somebody has to say what its failure means."""
