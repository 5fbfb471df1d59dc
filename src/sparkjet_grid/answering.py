"""What a member answers to requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.contents import Content
from sparkjet_grid.control import Control
from sparkjet_grid.copying import Copying
from sparkjet_grid.entries import Entries
from sparkjet_grid.errors import GridError, MovedError
from sparkjet_grid.finding import rows_of
from sparkjet_grid.messages import MOST, Get, Held, Message
from sparkjet_grid.pings import is_refused
from sparkjet_grid.requests import (
    FindRows,
    FoundRows,
    GetContacts,
    GetLastSlot,
    GetSlot,
    GetSlots,
    GetState,
    GetStatus,
    LastSlot,
    Listed,
    ListEntries,
    LooksGone,
    Ping,
    PutSlot,
    Reform,
    Remove,
    RemoveSlots,
    SlotToken,
    Status,
    Unheld,
    Verify,
)
from sparkjet_grid.server import Answer
from sparkjet_grid.view import View

_NEWER_WITHIN = 5.0


class Answering:
    """Answers for one member, from the threads of its server.

    Args:
        control: The control plane.
        view: What the member knows of its cluster.
        entries: What it holds.
        copying: Keeps replicas.
    """

    def __init__(self, control: Control, view: View, entries: Entries, copying: Copying) -> None:
        self._control, self._view, self._entries, self._copying = control, view, entries, copying
        self._got, self._counting = 0, threading.Lock()

    def answers(self) -> dict[type[Message], Answer]:
        """What is answered to each type of request."""
        control = self._control
        return {
            GetState: self._checked(self._state),
            # Also of a member that is cut off: an operator has to see it, and may form the survivors anew.
            GetStatus: lambda _: iter([self._status()]),
            Reform: lambda each: iter([self._reform(each)]),
            Ping: lambda _: iter([self._view.me]),
            LooksGone: self._checked(self._looks_gone),
            ListEntries: self._listed,
            Verify: self._checked(self._unheld),
            FindRows: self._found,
            Remove: self._checked(self._removed),
            PutSlot: self._checked(lambda each: control.put_slot(each.name, each.token, each.version)),
            GetSlot: self._checked(lambda each: SlotToken(control.slot(each.name))),
            GetLastSlot: self._checked(self._last_slot),
            GetSlots: self._checked(lambda each: control.slots(each.directory)),
            RemoveSlots: self._checked(self._removed_slots),
            GetContacts: self._checked(lambda _: control.contacts()),
        }

    def find(self, call: Get) -> list[Content | None]:
        """The entries that one call gets."""
        self._view.check()
        found = [self._entries.get(key) for key in call.keys]
        if not call.sender:
            with self._counting:
                self._got += sum(content is not None for content in found)
        return found

    def _checked(self, answer: Callable[[Any], Any]) -> Answer:
        def answered(request: Any) -> Iterator[Any]:
            self._view.check()
            yield answer(request)

        return answered

    def _state(self, request: GetState) -> ClusterState:
        self._view.wait(lambda: self._view.state.version > request.newer_than, request.seconds)
        return self._view.state

    def _status(self) -> Status:
        view, entries = self._view, self._entries
        copying = sum(map(len, self._copying.wanted().values()))
        voters, frozen = self._control.voters(), not view.is_confirmed()
        return Status(
            view.me, entries.used, entries.limit, len(entries), copying, voters, self._got, frozen, view.state
        )

    def _looks_gone(self, request: LooksGone) -> bool:
        others = [member for member in self._view.state.members if member.id != self._view.me]
        return any(is_refused(member) for member in others if member.id == request.member)

    def _listed(self, request: ListEntries) -> Iterator[Listed]:
        view = self._view
        with view.changes:
            rows = request.rows.items()
            if not view.wait(lambda: all(view.row(each).version >= version for each, version in rows), _NEWER_WITHIN):
                raise MovedError("this member has not heard of versions of rows that the caller knows.")
            view.check()
            for partition in request.rows:
                view.primary_row(partition)
            found = self._entries.listed(request.rows, request.prefix)
        held = [Held(key.partition, key.name, each.rows, each.size, each.digest) for key, each in found]
        for start in range(0, len(held), MOST):
            yield Listed(held[start : start + MOST])

    def _found(self, request: FindRows) -> Iterator[FoundRows]:
        # Nobody has to be asked whose partitions they are: entries never change, and a version says which count.
        self._view.check()
        yield from rows_of(self._entries, request)

    def _unheld(self, request: Verify) -> Unheld:
        contents = ((held, self._entries.get(held.key)) for held in request.held)
        return Unheld([held.key for held, each in contents if each is None or each.digest != held.digest])

    def _last_slot(self, request: GetLastSlot) -> LastSlot:
        found = self._control.last_slot(request.directory)
        return LastSlot(None) if found is None else LastSlot(*found)

    def _removed_slots(self, request: RemoveSlots) -> int:
        self._control.remove_slots(request.names)
        return len(request.names)

    def _removed(self, request: Remove) -> int:
        self._copying.remove(request.keys, request.prefix)
        return self._view.state.version

    def _reform(self, request: Reform) -> ClusterState:
        if self._view.is_confirmed():
            raise GridError("this member has its majority, which takes out who is gone by itself.")
        return self._control.reform(request.survivors)
