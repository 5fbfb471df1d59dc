"""Background work: what must not hold up the end of a process, and loops whose failure ends a member."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("sparkjet")


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

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class Loop:
    """Does the same again and again, in a thread of its own.

    Args:
        name: Of the thread.
        step: What is done; it waits as long as it should.
        failed: Called with the reason when a step raises before :meth:`stop`; there is none after it.
    """

    def __init__(self, name: str, step: Callable[[], None], failed: Callable[[str], None]) -> None:
        self._step, self._failed = step, failed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

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
            except Exception as error:
                if self._stopped.is_set():
                    # Whoever stops a loop closes what its last step may still be using.
                    logger.debug("%s was stopped in a step", self._thread.name, exc_info=error)
                    return
                # A member that has lost this thread would look alive, and do only half of what it should.
                logger.exception("%s has failed", self._thread.name)
                self._failed(f"{self._thread.name} has failed: {error}")
                return
