"""Telling a member what has changed, in a thread of its own: what the member does then holds nobody up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkjet.grid.cluster_state import ClusterState

logger = logging.getLogger("sparkjet")


class Announcements:
    """Calls a member with states in ascending versions, the newest there is, and at last with the reason of its end.

    Args:
        changed: Called with a state.
        ended: Called once, with the reason, after which nothing more is called.
    """

    def __init__(self, changed: Callable[[ClusterState], None], ended: Callable[[str], None]) -> None:
        self._changed, self._ended = changed, ended
        self._news = threading.Condition()
        self._newest: ClusterState | None = None
        self._reason: str | None = None
        self._told: ClusterState | None = None
        self._closed = False
        threading.Thread(target=self._run, name="sparkjet-grid-announcements", daemon=True).start()

    def publish(self, state: ClusterState) -> None:
        """A state that may be newer than the last one."""
        with self._news:
            if self._newest is None or state.version > self._newest.version:
                self._newest = state
                self._news.notify()

    def end(self, reason: str) -> None:
        """The member is none any more; only the first reason counts."""
        with self._news:
            if self._reason is None:
                self._reason = reason
                self._news.notify()

    def close(self) -> None:
        """Call nothing any more."""
        with self._news:
            self._closed = True
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closed or self._reason is not None or self._newest is not self._told)
                if self._closed:
                    return
                reason, told = self._reason, self._newest
                self._told = told
            if reason is not None:
                self._ended(reason)
                return
            if told is not None:
                try:
                    self._changed(told)
                # A member that cannot follow the cluster would serve what it should not: it ends.
                except Exception as error:
                    logger.exception("A member of the grid could not take over state %d", told.version)
                    self.end(f"it could not take over state {told.version}: {error}")
