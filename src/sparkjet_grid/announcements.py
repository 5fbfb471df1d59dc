"""Announces changes of the cluster to a member from a separate thread, so that its reaction delays nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkjet_grid.background import Loop

if TYPE_CHECKING:
    from sparkjet_grid.cluster_state import ClusterState


class Announcements:
    """Passes a member the newest state, in ascending versions, and finally the reason why its membership has ended.

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
        """Announce a state, unless a newer one has been announced."""
        with self._news:
            if self._newest is None or state.version > self._newest.version:
                self._newest = state
                self._news.notify()

    def end(self, reason: str) -> None:
        """Announce that the membership has ended; only the first reason counts."""
        with self._news:
            if self._reason is None:
                self._reason = reason
                self._news.notify()

    def close(self) -> None:
        """Stop announcing."""
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
            # Only now: a state that the member failed to apply is announced again.
            self._told = newest
