"""Pings: a member whose process is gone is reported at once, before the control plane notices."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from sparkjet_grid.background import Loop
from sparkjet_grid.cluster_state import Member

PERIOD = 0.25
"""Seconds between two pings of a member."""
_WITHIN = 1.0
_AT_ONCE = 16
_IN_A_ROW = 2


class Pings:
    """Connects to the other members, in parallel, and reports those that refuse connections twice in a row.

    Only a refused connection counts, as it shows that the process is gone. A slow, paused or cut-off member is left to
    the control plane, which knows where the majority is.

    Args:
        others: Returns the other members, each time.
        gone: Called with a member that is gone, and since how many seconds, at each ping until it has been removed.
        period: Seconds between two pings.
    """

    def __init__(
        self,
        others: Callable[[], list[Member]],
        gone: Callable[[Member, float], None],
        period: float = PERIOD,
    ) -> None:
        self._others, self._gone, self._period = others, gone, period
        self._refused: dict[str, tuple[int, float]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, "grid-ping")
        self._loop = Loop("grid-pings", self._step)

    def start(self) -> None:
        """Start pinging."""
        self._loop.start()

    def stop(self) -> None:
        """Stop pinging."""
        self._loop.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _step(self) -> None:
        self._loop.pause(self._period)
        if self._loop.is_stopped:
            return
        others = self._others()
        answers = [(each, self._pool.submit(is_refused, each)) for each in others]
        refused = [each for each, answer in answers if answer.result()]
        now, before = time.monotonic(), self._refused
        self._refused = {}
        for member in refused:
            times, since = before.get(member.id, (0, now))
            self._refused[member.id] = times + 1, since
            if times + 1 >= _IN_A_ROW:
                self._gone(member, now - since)


def is_refused(member: Member) -> bool:
    """Whether a member refuses connections."""
    address = urlsplit(member.uri)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), _WITHIN).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
