"""Pings: a member whose process is gone is reported at once, before the control plane misses it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from sparkjet.grid.cluster_state import Member

PERIOD = 0.25
"""Seconds between two pings of a member."""
_WITHIN = 1.0
_AT_ONCE = 16


class Pings:
    """Connects to the other members, in parallel, and reports those where nobody listens twice in a row.

    Only a refused connection counts: it says that the process is gone. One that is slow, paused or cut off is for the
    control plane to judge, which knows who has the majority.

    Args:
        others: The other members, asked each time.
        gone: Called with a member that is gone.
        period: Seconds between two pings.
    """

    def __init__(
        self, others: Callable[[], list[Member]], gone: Callable[[Member], None], period: float = PERIOD
    ) -> None:
        self._others, self._gone, self._period = others, gone, period
        self._refused: dict[str, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grid-pings", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ping no more."""
        self._stopped.set()

    def _run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "grid-ping") as pool:
            while not self._stopped.wait(self._period):
                others = self._others()
                refused = dict(zip((each.id for each in others), pool.map(_is_refused, others), strict=True))
                self._refused = {each: self._refused.get(each, 0) + 1 for each, is_one in refused.items() if is_one}
                for member in others:
                    if self._refused.get(member.id) == 2:  # noqa: PLR2004 - twice in a row
                        self._gone(member)


def _is_refused(member: Member) -> bool:
    address = urlsplit(member.uri)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), _WITHIN).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
