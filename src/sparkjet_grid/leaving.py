"""Leaving: a member that was asked to stop waits until others have what would be gone with it."""

from __future__ import annotations

import logging
import time

from sparkjet_grid.cluster_state import ClusterState, drained, is_drained
from sparkjet_grid.control import Control
from sparkjet_grid.entries import Entries
from sparkjet_grid.errors import StorageError
from sparkjet_grid.log import logger
from sparkjet_grid.view import View

_ALL_WITHIN = 60.0
"""Seconds to wait until others have copied all; after that only for what would be gone."""
_AGAIN = 1.0
"""Seconds after which a control plane that did not answer is asked again."""
_TELLS = 30.0


class Leaving:
    """Hands on what one member holds.

    Args:
        control: The control plane.
        view: What the member knows of its cluster.
        entries: What it holds.
        timeout: Seconds to wait while last replicas would go with it.
    """

    def __init__(self, control: Control, view: View, entries: Entries, timeout: float) -> None:
        self._control, self._view, self._entries, self._timeout = control, view, entries, timeout

    def hand_on(self) -> int:
        """Wait until the member can go; returns how many entries go that others should have got."""
        began = told = time.monotonic()
        while True:
            why = self._asked() if self._others_stay() else "all other members leave as well."
            state, waited = self._view.state, time.monotonic() - began
            if is_drained(state, self._view.me):
                return 0
            is_last = bool(self._last(state, why))
            if not self._others_stay() or waited >= (self._timeout if is_last else min(_ALL_WITHIN, self._timeout)):
                return self._tell_what_goes(state, why)
            if time.monotonic() > told + _TELLS:
                told = time.monotonic()
                logger.info("Member %s is to leave, and waits: others have yet to copy %d partitions.%s", self._view.me,
                            self._left(state), why and f" {why}")  # fmt: skip
            left = self._left(state)
            self._view.wait(lambda left=left: self._left(self._view.state) != left, _AGAIN)  # type: ignore[misc]

    def _asked(self) -> str:
        """Ask the others to copy what this member holds; why they cannot be asked now, or empty."""
        try:
            self._control.propose(lambda state: drained(state, self._view.me))
        except StorageError as error:
            return str(error)
        return ""

    def _others_stay(self) -> bool:
        state = self._view.state
        return bool({member.id for member in state.members} - {*state.draining, self._view.me})

    def _last(self, state: ClusterState, why: str) -> list[int]:
        """Partitions of which this member has a replica, and others only if they leave as well or are not heard of."""
        # Of two that leave at once each would take the other's replica for what stays. Who is cut off does not hear who
        # leaves as well, or has died.
        going = {
            self._view.me,
            *state.draining,
            *state.silent,
            *((member.id for member in state.members) if why else ()),
        }
        rows = enumerate(state.rows)
        return [partition for partition, row in rows if self._view.me in row.replicas and {*row.replicas} <= going]

    def _left(self, state: ClusterState) -> int:
        return sum(self._view.me in row.replicas for row in state.rows)

    def _tell_what_goes(self, state: ClusterState, why: str) -> int:
        me, last = self._view.me, self._last(state, why)
        count = len(self._entries.listed(last))
        if len(state.members) == 1:
            logger.log(
                logging.WARNING if count else logging.INFO,
                "Member %s was the last one: %d entries are gone with it.", me, count,
            )  # fmt: skip
            return 0
        if count:
            why = why or f"others have not copied them within {self._timeout:g} s (--leave-timeout)."
            logger.error(
                "Member %s leaves with %d entries of %d partitions that nobody else has: %s", me, count, len(last), why
            )
        else:
            logger.warning("Member %s leaves though others have not copied all yet: there are fewer backups.", me)
        return count
