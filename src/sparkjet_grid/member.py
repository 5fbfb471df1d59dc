"""A member: it holds its share of the entries, serves clients, and keeps replicas with the other members."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from dataclasses import dataclass, field

import pyarrow as pa

from sparkjet_grid.access import Access
from sparkjet_grid.cluster_state import GRACE, ClusterState, drained, is_drained, left, would_lose
from sparkjet_grid.cluster_state import Member as Address
from sparkjet_grid.connections import Connections
from sparkjet_grid.control import Control
from sparkjet_grid.copying import Copying
from sparkjet_grid.entries import Entries
from sparkjet_grid.errors import GridError, QuorumLostError, StorageError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import LooksGone, Ping, Put
from sparkjet_grid.pings import Pings
from sparkjet_grid.receiving import Receiving
from sparkjet_grid.server import Answering, Server
from sparkjet_grid.strangers import Strangers
from sparkjet_grid.view import LEASE, LeaseRenewal, View

_ALL_WITHIN = 60.0
"""Seconds to wait until others have copied everything; after that only for what would be lost."""
_AGAIN = 1.0
"""Seconds after which an unanswered control plane is asked again."""
_TELLS = 30.0
_NEWER_WITHIN = 5.0
_JOINS_WITHIN = 30.0
_CONFIRMS_WITHIN = 1.0
LEAVE_TIMEOUT = 3600.0
"""Default of the seconds that a stopping member waits while last replicas would be lost with it."""


class Leaving:
    """Hands over what a member holds before it leaves.

    Args:
        control: The control plane.
        view: Of the member.
        entries: Of the member.
        timeout: Seconds to wait while last replicas would be lost with it.
    """

    def __init__(self, control: Control, view: View, entries: Entries, timeout: float) -> None:
        self._control, self._view, self._entries, self._timeout = control, view, entries, timeout

    def hand_over(self) -> int:
        """Wait until the member can leave; returns how many entries are lost with it."""
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
                logger.info("Member %s waits to leave: others have yet to copy %d partitions.%s", self._view.me,
                            self._left(state), why and f" {why}")  # fmt: skip
            left = self._left(state)
            self._view.wait(lambda left=left: self._left(self._view.state) != left, _AGAIN)  # type: ignore[misc]

    def _asked(self) -> str:
        """Ask the others to copy what this member holds; returns why they cannot be asked now, or an empty text."""
        try:
            self._control.propose(lambda state: drained(state, self._view.me))
        except StorageError as error:
            return str(error)
        return ""

    def _others_stay(self) -> bool:
        state = self._view.state
        return bool({member.id for member in state.members} - {*state.draining, self._view.me})

    def _last(self, state: ClusterState, why: str) -> list[int]:
        """The partitions whose replicas are only on this member, and on others that leave as well or are silent."""
        # Otherwise of two that leave together each would rely on the other's replica. A member that is cut off does not
        # hear which others leave as well, or have died.
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


@dataclass(frozen=True)
class MemberSettings:
    """Settings of one member.

    Attributes:
        max_memory: Bytes that its entries may take; the process takes some 150 MB more.
        bind: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        advertise: Host name or address under which others reach it.
        host: Name of its machine, over which replicas are spread; that of this machine by default.
        lease: Seconds after which it serves no requests unless its control plane has answered; at most as long as the
            control plane keeps a silent member.
        leave_timeout: Seconds that it waits, when it is stopped, while last replicas would be lost with it.
        grace: Seconds to wait for a member that refuses connections, if it holds last replicas.
    """

    max_memory: int
    bind: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    host: str = field(default_factory=socket.gethostname)
    lease: float = LEASE
    leave_timeout: float = LEAVE_TIMEOUT
    grace: float = GRACE


class Member:
    """A member of a grid, from its start to its end.

    Args:
        settings: Its settings.
        access: Token and certificates, as a server and as a client of the others.
        control: The control plane.

    Raises:
        AnalysisError: Other machines could reach it, and there is no TLS.
    """

    def __init__(self, settings: MemberSettings, access: Access, control: Control) -> None:
        access.check_bind(settings.bind)
        self.id = os.urandom(8).hex()
        self.entries = Entries(settings.max_memory)
        self.view = View(self.id, settings.lease)
        self._control = control
        self._connections = Connections(access)
        self._connections.prepare()
        self._copying = Copying(self.entries, self.view, self._connections, control)
        self._lease = LeaseRenewal(control, self.view)
        self._pings = Pings(self._others, self._report)
        self._handover = Leaving(control, self.view, self.entries, settings.leave_timeout)
        self._grace = settings.grace
        self._awaited: set[str] = set()
        self._over = threading.Event()
        self._reason = ""
        self._says_goodbye = self._has_left = False
        # A daemon: a hanging call must not keep the process of a former member alive.
        self._leaving = threading.Thread(target=self._leave, name="grid-leave", daemon=True)
        self._begins_to_leave = threading.Lock()
        answering = Answering(control, self.view, self.entries, self._copying)
        answers, self._strangers = answering.answers(), Strangers()
        self._server = Server(
            settings.bind, settings.port, access, self._receive, answering.find, answers, self._strangers.entered
        )
        self._strangers.start(self._server.port)
        uri = access.uri(settings.advertise or settings.bind, self._server.port)
        self.address = Address(self.id, uri, settings.host)

    def start(self) -> None:
        """Join the cluster; the member cannot leave before this has returned."""
        self._control.join(self.address, self._changed, self.end, self._hears_others)
        # It comes from a thread of the control plane, and the loops below act on it.
        if not self.view.wait(self.view.has_state, _JOINS_WITHIN):
            raise GridError(f"the control plane has not told its state within {_JOINS_WITHIN:.0f} s.")
        self._lease.start()
        self._copying.start()
        self._pings.start()

    def begin_to_leave(self) -> None:
        """Start leaving, in a separate thread: see :meth:`leave`. A second call does nothing."""
        if self._begins_to_leave.acquire(blocking=False):
            self._leaving.start()

    def has_left(self, seconds: float) -> bool:
        """Whether the member was asked to leave and has left without loss; waits for that."""
        if self._begins_to_leave.locked():
            self._leaving.join(seconds)
        return self._has_left

    def leave(self) -> None:
        """Leave the cluster, as soon as others have copied what this member holds."""
        lost = self._handover.hand_over()
        self._says_goodbye = True
        self._control.leave()
        self._has_left = not lost
        self.end(f"it was stopped{(lost and f', and took {lost} entries with it that nobody else has') or ''}.")

    def end(self, reason: str) -> None:
        """Serve no more requests, and let :meth:`wait` return."""
        self.view.end(reason)
        self._reason = self._reason or reason
        self._over.set()

    def wait(self) -> str:
        """Wait for the end of the membership; returns its reason."""
        self._over.wait()
        return self._reason

    def close(self) -> None:
        """Stop the threads and the server, without leaving; waits for pending calls."""
        self._pings.stop()
        self._strangers.stop()
        self._lease.stop()
        self._copying.stop()
        self._server.shutdown()
        self._connections.close()

    def _leave(self) -> None:
        try:
            self.leave()
        except QuorumLostError as error:
            self.end(f"it could not leave in order: {error}")
        except Exception as error:
            # Otherwise whoever stops the member would wait endlessly.
            logger.exception("Member %s could not leave in order", self.id)
            self.end(f"it could not leave in order: {error}")

    def _changed(self, state: ClusterState) -> None:
        with self.view.changes:
            if not self.view.changed(state):
                return
            self._copying.drop_others()
        if self.id not in {member.id for member in state.members} and not self._says_goodbye:
            # The others could not reach this member and have removed it, though the control plane hears it.
            self.end("the cluster goes on without it.")

    def _others(self) -> list[Address]:
        return [member for member in self.view.state.members if member.id != self.id]

    def _report(self, gone: Address, seconds: float = 0.0) -> None:
        witnesses = [member for member in self._others() if member.id != gone.id]
        # Otherwise a firewall on this machine alone would remove all the others.
        if witnesses and not any(self._confirms(witness, gone) for witness in witnesses):
            return

        def without(state: ClusterState) -> ClusterState:
            # A firewall, or a service without endpoints, refuses as well: last replicas are worth waiting for.
            is_held_back = seconds < self._grace and would_lose(state, [gone.id])
            return state if is_held_back else left(state, [gone.id])

        try:
            state = self._control.propose(without)
        except StorageError as error:
            # The control plane finds out itself, somewhat later.
            logger.warning("Member %s could not be removed: %s", gone.id, error)
            return
        if gone.id not in {member.id for member in state.members}:
            logger.warning("Nobody listens at %s: member %s is removed from the grid.", gone.uri, gone.id)
        elif gone.id not in self._awaited:
            self._awaited.add(gone.id)
            logger.warning(
                "Nobody listens at %s: member %s holds last replicas of partitions, and is waited for, for %.0f s.",
                gone.uri, gone.id, self._grace,
            )  # fmt: skip

    def _confirms(self, witness: Address, gone: Address) -> bool:
        try:
            return self._connections.ask(witness.uri, LooksGone(gone.id), bool, _CONFIRMS_WITHIN)
        except GridError:
            return False

    def _hears_others(self) -> bool:
        return any(self._answers(member) for member in self._others())

    def _answers(self, member: Address) -> bool:
        try:
            return self._connections.ask(member.uri, Ping(), str, _CONFIRMS_WITHIN) == member.id
        except GridError:
            return False

    def _receive(self, call: Put, schema: pa.Schema) -> Receiving:
        if call.sender:
            # A member that has just joined is sent entries before its first lease.
            self.view.wait(self.view.is_confirmed, _NEWER_WITHIN)
        self.view.check()
        return Receiving(call, schema, self.entries, self.view, self._connections)
