"""Slots and the cluster's state in ZooKeeper: every write is atomic, and fails unless it finds what it expects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.control import checked, is_below
from sparkjet_grid.ensemble import ROOT, SERVERS
from sparkjet_grid.errors import RemovedError, StaleStateError
from sparkjet_grid.known_types import known
from sparkjet_grid.zookeeper_session import ZooKeeperSession

MEMBERS = f"{ROOT}/members"
STATE = f"{ROOT}/state"
SLOTS = f"{ROOT}/slots"
"""A node for each directory, with a child for each slot."""
_OWN = "/zookeeper", "/zookeeper/quota"
"""ZooKeeper's own nodes; its configuration beside them, with the addresses of servers, may be read by anybody."""


_Asking = Callable[[Callable[[Any], Any]], Any]
"""Sends a request and waits for the answer."""


class ZooKeeperSlots:
    """The data that members share, as one of them reads and writes it. Thread-safe.

    Args:
        session: Of the member.
        member: Its id.
    """

    def __init__(self, session: ZooKeeperSession, member: str) -> None:
        self.session = session
        self.node = f"{MEMBERS}/{member}"
        self._member = member
        self._last: dict[str, tuple[tuple[int, int], tuple[str, bytes]]] = {}
        """The last slot by directory, with the directory's creation and last change by which it was found."""

    def create(self, state: ClusterState) -> None:
        """Create a cluster."""
        # Until then anybody may write there.
        for path in ("/", *_OWN):
            self._close(path)
        for path, content in ((ROOT, b""), (MEMBERS, b""), (SERVERS, b""), (SLOTS, b"")):
            self._create(path, content)
        self._create(STATE, msgspec.msgpack.encode(state))

    def _close(self, path: str) -> None:
        self.session.ask(lambda client: client.set_acls_async(path, self.session.acl))

    def enter(self) -> None:
        """Make the member present for the first time; the state names it only after this."""
        self._create(self.node, self._member.encode(), ephemeral=True)

    def reenter(self) -> bool:
        """Make the member present again, in another session, if the state still names it: nobody has acted without it.

        False if that is not known yet, as the previous session has not ended at all servers.
        """
        state, node_version = self.state()
        if all(self._member != member.id for member in state.members):
            raise _removed()

        def request(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(STATE, node_version)
            transaction.create(self.node, self._member.encode(), ephemeral=True)
            return transaction.commit_async()

        errors = [result for result in self.session.ask(request) if isinstance(result, KazooException)]
        if not errors:
            return True
        stat = self.session.ask(lambda client: client.exists_async(self.node))
        return stat is not None and stat.ephemeralOwner == self.session.id

    def fence(self) -> None:
        """Write something, so that reads that follow are not older than this call.

        A sync would not do: a leader that was paused and has no followers left answers it.
        """
        self._fenced(lambda _: None)

    def _fenced(self, read: Callable[[Any], Any]) -> Any:
        """Read after such a write, without waiting for it: the requests of a session are processed in order."""
        try:
            return self.session.ask(
                lambda client: _Fenced(client.set_async(self.node, self._member.encode()), read(client))
            )
        except _NodeGoneError:
            # Unless kazoo has begun another session in the meantime.
            self.session.check()
            raise _removed() from None

    def state(self, woken: Callable[..., None] | None = None) -> tuple[ClusterState, int]:
        """The state as this member's server knows it, which may lag behind, and the version of its node."""
        content, stat = self.session.ask(lambda client: client.get_async(STATE, watch=woken))
        return msgspec.msgpack.decode(content, type=known(ClusterState)), stat.version

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """See :meth:`sparkjet_grid.control.Control.propose`."""
        while True:
            state, node_version = self.state()
            changed = change(state)
            if changed == state:
                # What was read may be old: then the change is applied to the newer state.
                self.fence()
                if self.state()[1] == node_version:
                    return state
            elif self._replaced(changed, node_version):
                return changed

    def members(self, woken: Callable[..., None] | None = None) -> list[str]:
        """The ids of the members that are present."""
        names: list[str] = self.session.ask(lambda client: client.get_children_async(MEMBERS, watch=woken))
        return names

    def dismiss(self, member: str) -> None:
        """End the presence of a member."""
        self._remove(f"{MEMBERS}/{member}")

    def put(self, name: str, token: bytes, version: int) -> bool:
        """See :meth:`sparkjet_grid.control.Control.put_slot`."""
        checked(token)
        path = _path(name)
        while True:
            state, node_version = self.state()
            if state.version < version:
                # This member's server lags behind the one that the writer has heard of it from.
                self.fence()
                state, node_version = self.state()
            if state.version == version and self._created(path, token, node_version):
                return True
            found = self.token(name)
            if found is not None:
                return found == token
            state, _ = self.state()
            if state.version != version:
                raise StaleStateError.at(version, state.version)

    def token(self, name: str) -> bytes | None:
        """See :meth:`sparkjet_grid.control.Control.slot`."""
        return self._content(name, self._fenced)

    def names(self, directory: str) -> list[str]:
        """See :meth:`sparkjet_grid.control.Control.slots`."""
        found: list[str] = []
        for node in self._children(SLOTS, self._fenced):
            parent = _text(node)
            if is_below(parent, directory):
                children = self._children(f"{SLOTS}/{node}", self.session.ask)
                found += (parent + _text(child) for child in children)
        return sorted(found)

    def last(self, directory: str) -> tuple[str, bytes] | None:
        """See :meth:`sparkjet_grid.control.Control.last_slot`."""
        parent = f"{directory}/"
        path = f"{SLOTS}/{_node(parent)}"
        while True:
            try:
                children, stat = self._fenced(lambda client: client.get_children_async(path, include_data=True))
            except NoNodeError:
                children = []
            if not children:
                self._last.pop(directory, None)
                return None
            # Slots never change, so without new or removed ones the last one need not be read again.
            seen, known = (stat.czxid, stat.cversion), self._last.get(directory)
            if known is not None and known[0] == seen:
                return known[1]
            last = parent + max(map(_text, children))
            found = self._content(last, self.session.ask)
            # Otherwise it has been removed since: there is a newer one, or none.
            if found is not None:
                self._last[directory] = seen, (last, found)
                return last, found

    def remove(self, names: Sequence[str]) -> None:
        """See :meth:`sparkjet_grid.control.Control.remove_slots`."""
        self.fence()
        paths = [_path(name) for name in names]
        for path in paths:
            self._remove(path)
        # Directories that are empty now; ZooKeeper refuses to remove the others.
        for parent in {path.rpartition("/")[0] for path in paths}:
            self._remove(parent)

    def _replaced(self, state: ClusterState, version: int) -> bool:
        # A conflicting state may be our own, written by an attempt whose answer was lost: then the change is repeated.
        try:
            self.session.ask(lambda client: client.set_async(STATE, msgspec.msgpack.encode(state), version=version))
        except BadVersionError:
            return False
        return True

    @staticmethod
    def _content(name: str, ask: _Asking) -> bytes | None:
        try:
            content, _ = ask(lambda client: client.get_async(_path(name)))
        except NoNodeError:
            return None
        return bytes(content)

    @staticmethod
    def _children(path: str, ask: _Asking) -> list[str]:
        try:
            names: list[str] = ask(lambda client: client.get_children_async(path))
        except NoNodeError:
            return []
        return names

    def _remove(self, path: str) -> None:
        try:
            self.session.ask(lambda client: client.delete_async(path))
        except (NoNodeError, NotEmptyError):
            # Removed by another member, or by an attempt whose answer was lost; or no longer empty.
            return

    def _create(self, path: str, content: bytes, *, ephemeral: bool = False) -> None:
        try:
            self.session.ask(lambda client: client.create_async(path, content, ephemeral=ephemeral))
        except NodeExistsError:
            # By an attempt whose answer was lost, or by another member with the same content.
            return

    def _created(self, path: str, token: bytes, node_version: int) -> bool:
        """Whether the slot has been written now; if not, an attempt whose answer was lost may have done so."""

        def request(client: Any) -> Any:
            transaction = client.transaction()
            transaction.check(STATE, node_version)
            # kazoo may have begun another session unnoticed, in which the member is not present.
            transaction.check(self.node, -1)
            transaction.create(path, token)
            return transaction.commit_async()

        results = self.session.ask(request)
        errors = [result if isinstance(result, KazooException) else None for result in results]
        causes = [error for error in errors if error and not isinstance(error, (RolledBackError, RuntimeInconsistency))]
        if not any(errors):
            return True
        if isinstance(errors[1], NoNodeError):
            self.session.check()
            raise _removed()
        if isinstance(errors[2], NoNodeError):
            self._create(path.rpartition("/")[0], b"")
        elif any(not isinstance(cause, (BadVersionError, NodeExistsError)) for cause in causes):
            raise causes[0]
        return False


class _NodeGoneError(Exception):
    """The node of a member does not exist any longer."""


class _Fenced(NamedTuple):
    """The pending answers to a write and to the read after it, if there is one."""

    fence: Any
    answer: Any

    def get(self, timeout: float) -> Any:
        """Wait for both, like kazoo's method of one answer; the read counts only if the write succeeded."""
        try:
            self.fence.get(timeout=timeout)
        except NoNodeError:
            # Not to be confused with a missing node of the read.
            raise _NodeGoneError from None
        return None if self.answer is None else self.answer.get(timeout=timeout)


def _path(name: str) -> str:
    # The slash belongs to the directory: "/a" differs from "a".
    parent, slash, last = name.rpartition("/")
    return f"{SLOTS}/{_node(parent + slash)}/{_node(last)}"


def _node(text: str) -> str:
    # The prefix avoids names that a path must not have: "", "." and "..".
    return f"={quote(text, safe='')}"


def _text(node: str) -> str:
    return unquote(node[1:])


def _removed() -> RemovedError:
    return RemovedError("the others have taken this member for dead, or it has left.")
