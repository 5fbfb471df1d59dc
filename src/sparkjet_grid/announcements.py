"""Telling a member what has changed, in a thread of its own: what the member does then holds nobody up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkjet_grid.background import Loop

if TYPE_CHECKING:
    from sparkjet_grid.cluster_state import ClusterState


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
        self._loop = Loop("grid-announcements", self._step)
        self._loop.start()

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
            self._loop.stop()
            self._news.notify()

    def _step(self) -> None:
        with self._news:
            self._news.wait_for(
                lambda: self._loop.is_stopped or self._reason is not None or self._newest is not self._told
            )
            if self._loop.is_stopped:
                return
            reason, newest = self._reason, self._newest
        if reason is not None:
            self._ended(reason)
            self._loop.stop()
        elif newest is not None:
            self._changed(newest)
            # Only now: one that could not be taken over is told again.
            self._told = newest
