"""The control plane of several members: they agree through ZooKeeper servers that some of them run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import msgspec
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from sparkjet.errors import AnalysisError, StorageError
from sparkjet.grid.announcements import Announcements
from sparkjet.grid.cluster_state import ClusterState, Member, first, joined, left, reformed
from sparkjet.grid.ensemble import ROOT, SERVERS, Ensemble
from sparkjet.grid.errors import QuorumLostError
from sparkjet.grid.partition_table import PARTITIONS
from sparkjet.grid.zookeeper_session import ZooKeeperSession
from sparkjet.grid.zookeeper_settings import ZooKeeperSettings
from sparkjet.grid.zookeeper_slots import LOGS, MEMBERS, STATE, ZooKeeperSlots

_TICK = 1.0
"""Seconds after which a member looks even if nothing has woken it."""
_SOON = 0.1
"""The same while there is something left to do."""
_START = 60.0
"""Seconds that a server may take to start on a busy machine."""
_PURGE = 30.0
logger = logging.getLogger("sparkjet")


class ZooKeeperControl:
    """A :class:`~sparkjet.grid.control.Control` of any number of members.

    A member is one as long as its session lives. One thread looks after it: it takes over states, runs a server if
    this member is to vote, and, at the first member that lives, removes the dead and changes who votes.

    Args:
        settings: How members agree.
        contacts: What :meth:`contacts` of a member says; empty for the first member of a new cluster.
        partitions: Of a new cluster.
        backup_count: Of a new cluster.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        contacts: Sequence[str] = (),
        *,
        partitions: int = PARTITIONS,
        backup_count: int = 1,
    ) -> None:
        self._settings, self._seeds = settings, list(contacts)
        self._partitions, self._backup_count = partitions, backup_count
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._leaving = False
        self._reforming: tuple[frozenset[str], Future[ClusterState]] | None = None
        self._newest: ClusterState | None = None
        self._thread: threading.Thread | None = None

    def join(self, member: Member, changed: Callable[[ClusterState], None], ended: Callable[[str], None]) -> None:
        """See :meth:`sparkjet.grid.control.Control.join`.

        Raises:
            QuorumLostError: There is no cluster at the contacts, or it has no majority.
            AnalysisError: Settings are wrong, jars or Java are missing, or the cluster has another token.
        """
        if self._thread is not None:
            message = f"Member {member.id} cannot join: this control plane is that of another one. Make a new one."
            raise StorageError(message)
        new = None
        if not self._seeds:
            new = first(uuid4().hex, member, partitions=self._partitions, backup_count=self._backup_count)
        self._member = member
        self._ensemble = Ensemble(member.id, self._settings)
        seeds = self._seeds or [self._ensemble.found()]
        self._session = ZooKeeperSession(seeds, self._settings, self._wake.set)
        self._slots = ZooKeeperSlots(self._session, member.id)
        self._announcements = Announcements(changed, ended)
        self._thread = threading.Thread(target=self._run, name="sparkjet-grid-control", daemon=True)
        try:
            self._session.start(_START if new is not None else self._settings.patience)
            if new is not None:
                self._create(new)
            self._enter()
        except BaseException:
            self._close("it could not join")
            raise
        self._thread.start()

    def leave(self) -> None:
        """See :meth:`sparkjet.grid.control.Control.leave`."""
        if self._leaving or self._thread is None:
            return
        self._leaving = True
        try:
            state = self.propose(lambda state: left(state, {self._member.id}))
            if state.members:
                self._session.ask(lambda client: client.delete_async(self._slots.node))
                self._wake.set()
                # Who votes must not go before another one votes instead.
                deadline = time.monotonic() + self._settings.patience
                while self._ensemble.server is not None and time.monotonic() < deadline:
                    threading.Event().wait(_SOON)
        except QuorumLostError as error:
            # Nobody is there to say goodbye to.
            logger.info("Member %s leaves without the others: %s", self._member.id, error)
        finally:
            self._announcements.close()
            self._close("it has left")

    def state(self) -> ClusterState:
        """See :meth:`sparkjet.grid.control.Control.state`."""
        if self._newest is None:
            raise QuorumLostError("this member has not joined a cluster.")
        return self._newest

    def contacts(self) -> list[str]:
        """See :meth:`sparkjet.grid.control.Control.contacts`."""
        return self._ensemble.contacts()

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """See :meth:`sparkjet.grid.control.Control.propose`."""
        while True:
            state, version = self._slots.state()
            changed = change(state)
            if changed == state:
                # What was read may be old; then there is something newer to change.
                self._slots.fence()
                if self._slots.state()[1] == version:
                    return self._seen(state)
            elif self._slots.replace(changed, version):
                return self._seen(changed)

    def put_slot(self, log: str, slot: int, token: bytes, version: int) -> bool:
        """See :meth:`sparkjet.grid.control.Control.put_slot`."""
        return self._slots.put(log, slot, token, version)

    def slots(self, log: str) -> list[int]:
        """See :meth:`sparkjet.grid.control.Control.slots`."""
        return self._slots.numbers(log)

    def slot(self, log: str, slot: int) -> bytes | None:
        """See :meth:`sparkjet.grid.control.Control.slot`."""
        return self._slots.token(log, slot)

    def remove_slots(self, log: str, below: int) -> None:
        """See :meth:`sparkjet.grid.control.Control.remove_slots`."""
        self._slots.remove(log, below)

    def logs(self) -> list[str]:
        """See :meth:`sparkjet.grid.control.Control.logs`."""
        return self._slots.logs()

    def voters(self) -> list[str]:
        """See :meth:`sparkjet.grid.control.Control.voters`."""
        self._slots.fence()
        return self._ensemble.voters()

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """Go on without a majority, as another cluster: what an operator decides who knows that the others are dead.

        To be called at one member whose server has voted. Survivors that it can reach stay members. What only the
        others knew is lost, decided slots included; two clusters go on if the others are not dead.

        Args:
            survivors: Ids of the members that are left, this one among them.

        Raises:
            StorageError: This member has never voted: another survivor has to do it.
        """
        result: Future[ClusterState] = Future()
        self._reforming = frozenset(survivors), result
        self._wake.set()
        return result.result(_START)

    def _reform(self, survivors: Collection[str], cluster: str) -> ClusterState:
        contact = self._ensemble.alone() if self._member.id in survivors else None
        if contact is None:
            message = (
                f"Member {self._member.id} cannot form the survivors anew, as it does not know what was decided: its "
                f"server did not vote. Those that did: {', '.join(self._ensemble.voters())}."
            )
            raise StorageError(message)
        self._session.use([contact])
        deadline = time.monotonic() + _START / 2
        while self._session.ended is None:
            try:
                state = self.propose(lambda state: reformed(state, survivors, cluster))
            except QuorumLostError:
                if time.monotonic() > deadline:
                    raise
            else:
                for name in self._session.ask(lambda client: client.get_children_async(MEMBERS)):
                    if name not in survivors:
                        self._delete(f"{MEMBERS}/{name}")
                return state
        raise QuorumLostError(self._session.ended)

    def _create(self, state: ClusterState) -> None:
        # Anybody may write to the root until this.
        self._session.ask(lambda client: client.set_acls_async("/", self._session.acl))
        for path, content in ((ROOT, b""), (MEMBERS, b""), (SERVERS, b""), (LOGS, b"")):
            self._put(path, content)
        self._put(STATE, msgspec.msgpack.encode(state))
        self._ensemble.publish(self._session)

    def _put(self, path: str, content: bytes, *, ephemeral: bool = False) -> None:
        try:
            self._session.ask(lambda client: client.create_async(path, content, ephemeral=ephemeral))
        except NodeExistsError:
            # By an attempt whose answer was lost: nobody else creates this one.
            return

    def _delete(self, path: str) -> None:
        try:
            self._session.ask(lambda client: client.delete_async(path))
        except NoNodeError:
            # It has ended by itself.
            return

    def _enter(self) -> None:
        try:
            self._put(self._slots.node, self._member.id.encode(), ephemeral=True)
        except NoNodeError:
            message = f"There is no grid at {', '.join(self._seeds)}."
            raise AnalysisError(message) from None
        self.propose(lambda state: joined(state, self._member))
        self._ensemble.refresh(self._session, self._woken)

    def _seen(self, state: ClusterState) -> ClusterState:
        with self._lock:
            newest = self._newest
            if newest is None or state.version > newest.version:
                self._newest = state
                self._announcements.publish(state)
        return state

    def _woken(self, *_: Any) -> None:
        self._wake.set()

    def _run(self) -> None:
        pause, purged = 0.0, time.monotonic()
        while self._session.ended is None:
            self._wake.wait(pause)
            self._wake.clear()
            try:
                if self._reforming is not None:
                    self._answer(*self._reforming)
                pause = _TICK if self._ensemble.tend() and self._step() else _SOON
                if time.monotonic() > purged + _PURGE and self._ensemble.server is not None:
                    self._ensemble.server.purge()
                    purged = time.monotonic()
            except QuorumLostError as error:
                pause = _SOON
                if self._session.silence > self._settings.cut_off:
                    self._end(str(error))
            except (KazooException, OSError, StorageError) as error:
                logger.exception("A member of the grid ends: its control plane has failed")
                self._end(f"its control plane has failed: {error}")
        if not self._leaving:
            self._end(self._session.ended)

    def _answer(self, survivors: Collection[str], result: Future[ClusterState]) -> None:
        self._reforming = None
        try:
            result.set_result(self._reform(survivors, uuid4().hex))
        except StorageError as error:
            result.set_exception(error)

    def _step(self) -> bool:
        """Look what is new, and do what this member has to do about it; whether nothing is left to do."""
        state, _ = self._slots.state(self._woken)
        self._seen(state)
        live = self._session.ask(lambda client: client.get_children_async(MEMBERS, watch=self._woken))
        self._ensemble.refresh(self._session, self._woken)
        ids = [member.id for member in state.members]
        if self._member.id not in ids and not self._leaving:
            self._end("the others have removed it")
            return True
        # A member that is in this state was there before it: who is not there now has ended.
        living = [id_ for id_ in ids if id_ in live]
        coordinates = bool(living) and living[0] == self._member.id
        if coordinates and len(living) < len(ids):
            dead = set(ids) - set(living)
            state = self.propose(lambda newest: left(newest, dead))
        return self._ensemble.adapt(self._session, state, coordinates=coordinates)

    def _end(self, reason: str) -> None:
        self._announcements.end(reason)
        self._close(reason)

    def _close(self, reason: str) -> None:
        self._session.close(reason)
        self._ensemble.stop()
