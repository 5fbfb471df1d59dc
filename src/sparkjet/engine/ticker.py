"""The ticker, which lets time pass for a query that receives nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

from sparkjet.time import parse_duration

DEFAULT_INTERVAL = 0.1
_MICROSECONDS = 1_000_000


class Ticker:
    """Calls a function at an interval of wall-clock time, in a separate thread, until it is stopped.

    Args:
        interval: Seconds between the calls.

    >>> called = threading.Event()
    >>> ticker = Ticker(0.001)
    >>> ticker.start("example", called.set)
    >>> called.wait()
    True
    >>> ticker.stop()
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._stopped = threading.Event()

    def start(self, name: str, tick: Callable[[], None]) -> None:
        """Start calling; ``tick`` must not raise."""

        def run() -> None:
            while not self._stopped.wait(self._interval):
                tick()

        threading.Thread(target=copy_context().run, args=(run,), name=f"sparkjet-ticker-{name}", daemon=True).start()

    def stop(self) -> None:
        """Stop calling; a running call continues. A second call does nothing."""
        self._stopped.set()


def tick_interval(processing_time: str | bool | None) -> float:
    """Seconds between ticks: the trigger's interval, so that a quiet stream is no busier than one with data.

    >>> tick_interval("10 seconds"), tick_interval(None)
    (10.0, 0.1)
    """
    interval = parse_duration(processing_time, "processingTime") / _MICROSECONDS if processing_time else 0
    return interval or DEFAULT_INTERVAL
