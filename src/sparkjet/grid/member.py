"""A member: it holds its share of the entries, serves clients, and keeps replicas with the other members."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparkjet.errors import StorageError
from sparkjet.grid.access import Access
from sparkjet.grid.cluster_state import ClusterState, drained, is_drained, left
from sparkjet.grid.cluster_state import Member as Address
from sparkjet.grid.connections import Connections
from sparkjet.grid.contents import Content
from sparkjet.grid.control import Control
from sparkjet.grid.copying import Copying
from sparkjet.grid.entries import Entries
from sparkjet.grid.errors import GridError, MovedError
from sparkjet.grid.lease import Lease
from sparkjet.grid.messages import MOST, Get, Held, Message, Put
from sparkjet.grid.pings import PERIOD, Pings, is_refused
from sparkjet.grid.receiving import Receiving
from sparkjet.grid.requests import (
    GetContacts,
    GetSlot,
    GetSlots,
    GetState,
    GetStatus,
    Listed,
    ListEntries,
    LooksGone,
    Ping,
    PutSlot,
    Remove,
    RemoveSlots,
    SlotToken,
    Status,
    Unheld,
    Verify,
)
from sparkjet.grid.server import Answer, Server
from sparkjet.grid.view import LEASE, View

_NEWER_WITHIN = 5.0
_JOINS_WITHIN = 30.0
_CONFIRMS_WITHIN = 1.0
logger = logging.getLogger("sparkjet")


@dataclass(frozen=True)
class MemberSettings:
    """Settings of one member.

    Attributes:
        max_memory: Bytes that its entries may take; the process takes some 150 MB more.
        bind: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        advertise: Host name or address under which others reach it.
        host: Name of the machine, which replicas are spread over; that of this machine by default.
        ping_period: Seconds between two looks whether the others are there.
        lease: Seconds after which it does nothing for others unless its control plane has answered; not more than that
            keeps a silent member.
    """

    max_memory: int
    bind: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    host: str = field(default_factory=socket.gethostname)
    ping_period: float = PERIOD
    lease: float = LEASE


class Member:
    """One member of a grid, from its start to its end.

    Args:
        settings: Its settings.
        access: Token and certificates, its own and those by which it reaches the others.
        control: The control plane.

    Raises:
        AnalysisError: Others could reach it, and there is no TLS.
    """

    def __init__(self, settings: MemberSettings, access: Access, control: Control) -> None:
        access.check_bind(settings.bind)
        self.id = os.urandom(8).hex()
        self.entries = Entries(settings.max_memory)
        self.view = View(self.id, settings.lease)
        self._control = control
        self._connections = Connections(access)
        self._copying = Copying(self.entries, self.view, self._connections, control, self.end)
        self._lease = Lease(control, self.view, self.end)
        self._pings = Pings(self._others, self._report, self.end, settings.ping_period)
        self._over = threading.Event()
        self._reason = ""
        self._got = 0
        self._server = Server(settings.bind, settings.port, access, self._receive, self._find, self._answers())
        uri = access.uri(settings.advertise or settings.bind, self._server.port)
        self.address = Address(self.id, uri, settings.host)

    def start(self) -> None:
        """Join the cluster."""
        self._control.join(self.address, self._changed, self.end)
        # It comes from a thread of the control plane, and everything below acts on it.
        if not self.view.wait(self.view.has_state, _JOINS_WITHIN):
            raise GridError(f"the control plane has not told its state within {_JOINS_WITHIN:.0f} s.")
        self._lease.start()
        self._copying.start()
        self._pings.start()

    def leave(self, drains_within: float = 0.0) -> None:
        """Be no member any more, as soon as others have copied what this one holds.

        Args:
            drains_within: Seconds to wait for that; then only replicas that others have already are left.
        """
        self._drain(drains_within)
        self._control.leave()
        self.end("it was stopped.")

    def end(self, reason: str) -> None:
        """Do nothing for others any more; whoever waits for the end is told."""
        self.view.end(reason)
        self._reason = self._reason or reason
        self._over.set()

    def wait(self) -> str:
        """Wait for the end; returns its reason."""
        self._over.wait()
        return self._reason

    def close(self) -> None:
        """End the threads and the server, without leaving; waits for the calls that are under way."""
        self._pings.stop()
        self._lease.stop()
        self._copying.stop()
        self._server.shutdown()
        self._connections.close()

    def _changed(self, state: ClusterState) -> None:
        with self.view.changes:
            if not self.view.changed(state):
                return
            self._copying.drop_others()
        if self.id not in {member.id for member in state.members}:
            # Others have taken over, though the control plane still hears it: they could not reach it.
            self.end("the cluster goes on without it.")

    def _drain(self, seconds: float) -> None:
        if seconds == 0.0 or not self._others():
            return
        try:
            self._control.propose(lambda state: drained(state, self.id))
            if not self.view.wait(lambda: is_drained(self.view.state, self.id), seconds):
                logger.warning("Member %s leaves, though others have not copied all in %.0f s.", self.id, seconds)
        except StorageError as error:
            logger.warning("Member %s leaves without having handed on what it holds: %s", self.id, error)

    def _others(self) -> list[Address]:
        return [member for member in self.view.state.members if member.id != self.id]

    def _report(self, gone: Address) -> None:
        witnesses = [member for member in self._others() if member.id != gone.id]
        # A firewall of this machine alone would otherwise take out all the others.
        if witnesses and not any(self._confirms(witness, gone) for witness in witnesses):
            return
        logger.warning("Nobody listens at %s any more: member %s is taken out of the grid.", gone.uri, gone.id)
        try:
            self._control.propose(lambda state: left(state, [gone.id]))
        except StorageError as error:
            # The control plane finds out by itself, somewhat later.
            logger.warning("Member %s could not be taken out: %s", gone.id, error)

    def _confirms(self, witness: Address, gone: Address) -> bool:
        try:
            return self._connections.ask(witness.uri, LooksGone(gone.id), bool, _CONFIRMS_WITHIN)
        except GridError:
            return False

    def _looks_gone(self, request: LooksGone) -> bool:
        return any(is_refused(member) for member in self._others() if member.id == request.member)

    def _receive(self, call: Put, schema: pa.Schema) -> Receiving:
        if call.sender:
            # Who has just joined gets what is handed on at once, before it has asked for the first time.
            self.view.wait(self.view.is_confirmed, _NEWER_WITHIN)
        self.view.check()
        return Receiving(call, schema, self.entries, self.view, self._connections)

    def _find(self, call: Get) -> list[Content | None]:
        self.view.check()
        found = [self.entries.get(key) for key in call.keys]
        if not call.sender:
            with self.view.changes:
                self._got += sum(content is not None for content in found)
        return found

    def _answers(self) -> dict[type[Message], Answer]:
        control = self._control

        def checked(answer: Callable[[Any], Any]) -> Answer:
            def answered(request: Any) -> Iterator[Any]:
                self.view.check()
                yield answer(request)

            return answered

        return {
            GetState: checked(self._state),
            GetStatus: self._status,
            Ping: lambda _: iter([self.id]),
            LooksGone: checked(self._looks_gone),
            ListEntries: self._listed,
            Verify: checked(self._unheld),
            Remove: checked(self._removed),
            PutSlot: checked(lambda each: control.put_slot(each.name, each.token, each.version)),
            GetSlot: checked(lambda each: SlotToken(control.slot(each.name))),
            GetSlots: checked(lambda each: control.slots(each.directory)),
            RemoveSlots: checked(self._removed_slots),
            GetContacts: checked(lambda _: control.contacts()),
        }

    def _state(self, request: GetState) -> ClusterState:
        self.view.wait(lambda: self.view.state.version > request.newer_than, request.seconds)
        return self.view.state

    def _status(self, _: GetStatus) -> Iterator[Status]:
        copying = sum(map(len, self._copying.wanted().values()))
        entries = self.entries
        voters = self._control.voters()
        yield Status(self.id, entries.used, entries.limit, len(entries), copying, voters, self._got)

    def _listed(self, request: ListEntries) -> Iterator[Listed]:
        view = self.view
        with view.changes:
            rows = request.rows.items()
            if not view.wait(lambda: all(view.row(each).version >= version for each, version in rows), _NEWER_WITHIN):
                raise MovedError("this member has not heard of versions of rows that the caller knows.")
            view.check()
            for partition in request.rows:
                view.primary_row(partition)
            found = self.entries.listed(request.rows, request.prefix)
        held = [Held(key.partition, key.name, each.rows, each.size, each.digest) for key, each in found]
        for start in range(0, len(held), MOST):
            yield Listed(held[start : start + MOST])

    def _unheld(self, request: Verify) -> Unheld:
        contents = ((held, self.entries.get(held.key)) for held in request.held)
        return Unheld([held.key for held, each in contents if each is None or each.digest != held.digest])

    def _removed_slots(self, request: RemoveSlots) -> int:
        self._control.remove_slots(request.names)
        return len(request.names)

    def _removed(self, request: Remove) -> int:
        self._copying.remove(request.keys, request.prefix)
        return self.view.state.version
