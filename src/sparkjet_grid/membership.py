"""A membership: what a member does to be one, from its first session to its end, in a thread of its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from kazoo.exceptions import NoNodeError

from sparkjet_grid.announcements import Announcements
from sparkjet_grid.background import Loop
from sparkjet_grid.cluster_state import (
    ClusterState,
    Member,
    departed,
    joined,
    left,
    reformed,
    silenced,
    without_votes,
    would_lose,
)
from sparkjet_grid.ensemble import Ensemble
from sparkjet_grid.errors import AnalysisError, NoServerError, QuorumLostError, RemovedError, StorageError
from sparkjet_grid.log import logger
from sparkjet_grid.zookeeper_server import check_server
from sparkjet_grid.zookeeper_session import SessionEndedError, ZooKeeperSession
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from sparkjet_grid.zookeeper_slots import ZooKeeperSlots

T = TypeVar("T")

_TICK = 1.0
"""Seconds after which a member looks even if nothing has woken it."""
_SOON = 0.1
"""The same while there is something left to do."""
_VOTES_AGAIN = 60.0
"""Seconds after which a member that could not vote looks whether it can."""
_TELLS = 60.0
"""Seconds after which it is logged again what a member waits for."""
_START = 60.0
"""Seconds that a server may take to start on a busy machine."""
_PURGE = 5.0
"""Seconds after which files that nobody needs are removed."""
_GOES = 3
"""Times the patience for which a server that voted waits, when its member leaves, until others go on without it."""
_STEADY = 2
"""Sessions' lengths after an interruption in which nobody is taken for dead: the others were interrupted as well."""


class Membership:
    """One member's. Sessions may end and be followed by others, as long as the cluster's state names the member.

    Its thread takes over states, runs a server if the member is to vote, and, at the first member that is there,
    removes those that are gone and changes who votes.

    Args:
        member: This one.
        settings: Of the control plane.
        announcements: What the member is told.
        reached: Whether any other member answers this one, whatever is between it and a majority.
    """

    def __init__(
        self,
        member: Member,
        settings: ZooKeeperSettings,
        announcements: Announcements,
        reached: Callable[[], bool] = lambda: False,
    ) -> None:
        self._member, self._settings, self._announcements, self._reached = member, settings, announcements, reached
        self.ensemble = Ensemble(member.id, settings)
        self._rounds = Loop("grid-membership", self._look)
        # Not in the thread of the rounds: those wait for servers, of which this may be the only one.
        self._tending = Loop("grid-server", self._tend)
        self._pause = 0.0
        self._waits = _Waits()
        self._wake = threading.Event()
        self._changed = threading.Condition()
        self._over: str | None = None
        self._leaving = False
        self._reforming: tuple[frozenset[str], Future[ClusterState]] | None = None
        self._newest: ClusterState | None = None
        self._entered = time.monotonic()
        self._purged = self._votes_from = 0.0
        self._missed: dict[str, float] = {}

    def begin(self, seeds: Sequence[str], new: ClusterState | None) -> None:
        """Become a member, and stay one."""
        contacts = seeds if new is None else [self.ensemble.found()]
        self._shared = ZooKeeperSlots(ZooKeeperSession(contacts, self._settings, self._wake.set), self._member.id)
        try:
            self._shared.session.start(self._settings.patience if new is None else _START, self.ensemble.check)
            if new is not None:
                self._shared.found(new)
                self.ensemble.publish(self._shared.session)
            self._shared.begin()
            self.seen(self._shared.propose(lambda state: joined(state, self._member)))
            self.ensemble.refresh(self._shared.session, self._woken)
        except NoNodeError:
            self._close("it could not join")
            raise AnalysisError(f"There is no grid at {', '.join(contacts)}.") from None
        except BaseException:
            self._close("it could not join")
            raise
        self._entered = float("-inf")
        self._rounds.start()
        self._tending.start()

    def leave(self) -> None:
        """Be none any more; a second call does nothing."""
        if self._leaving:
            return
        self._leaving = True
        try:
            if self.call(lambda shared: shared.propose(lambda state: departed(state, self._member.id))).members:
                self.call(lambda shared: shared.dismiss(self._member.id))
                self._wake.set()
                # Who votes must not go before another one votes instead.
                deadline = time.monotonic() + _GOES * self._settings.patience
                while self.ensemble.server is not None and self._over is None and time.monotonic() < deadline:
                    threading.Event().wait(_SOON)
        except QuorumLostError as error:
            # Nobody is there to say goodbye to.
            logger.info("Member %s leaves without the others: %s", self._member.id, error)
        finally:
            self._announcements.close()
            self._close("it has left")

    def call(self, request: Callable[[ZooKeeperSlots], T]) -> T:
        """What a request answers, in whichever session; it must be harmless when repeated."""
        deadline = time.monotonic() + self._settings.patience
        while True:
            shared = self._shared
            try:
                return request(shared)
            except SessionEndedError as error:
                with self._changed:
                    self._changed.wait_for(
                        lambda shared=shared: self._over is not None or self._shared is not shared,  # type: ignore[misc]
                        max(deadline - time.monotonic(), 0.0),
                    )
                if self._over is not None:
                    raise RemovedError(f"this member has ended: {self._over.rstrip('.')}.") from error
                if self._shared is shared:
                    raise

    def seen(self, state: ClusterState) -> ClusterState:
        """A state that may be newer than those before."""
        with self._changed:
            if self._newest is None or state.version > self._newest.version:
                self._newest = state
                self._announcements.publish(state)
        return state

    def state(self) -> ClusterState:
        """The newest state."""
        if self._newest is None:
            raise QuorumLostError("this member has not joined a cluster.")
        return self._newest

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """See :meth:`sparkjet_grid.zookeeper_control.ZooKeeperControl.reform`."""
        result: Future[ClusterState] = Future()
        with self._changed:
            if self._reforming is not None:
                # It would take the place of the one before, which would wait in vain.
                raise StorageError(f"Member {self._member.id} is being formed anew already: another command is at it.")
            self._reforming = frozenset(survivors), result
        self._wake.set()
        try:
            return result.result(2 * _START)
        except FutureTimeoutError:
            message = f"Member {self._member.id} was not formed anew within {2 * _START:.0f} s; its log may say why."
            raise StorageError(message) from None

    def _look(self) -> None:
        self._wake.wait(self._pause)
        self._wake.clear()
        self._pause = _SOON
        try:
            self._pause = _TICK if self._round() else _SOON
        except RemovedError as error:
            self._end(str(error))
        except QuorumLostError as error:
            self._wait(error)
        else:
            self._waits = _Waits()

    def _wait(self, error: QuorumLostError) -> None:
        """Wait for a majority; who hears nobody at all for long is cut off, and ends."""
        if self._over is not None:
            return
        now, why = time.monotonic(), f"{error} {self.ensemble.trouble()}".rstrip()
        if now > self._waits.told + _TELLS:
            logger.warning("Member %s waits for a majority: %s", self._member.id, why)
            self._waits.told = now
        if now < self._waits.since + self._settings.cut_off:
            return
        # What ends all servers at once, as a full disk, would end all members, and what they hold with them.
        if self._reached():
            logger.warning("Member %s goes on waiting, as other members answer it.", self._member.id)
            self._waits = _Waits()
        else:
            self._end(f"{why} No other member has answered either.")

    def _round(self) -> bool:
        """Look what is new, and do what this member has to do about it; whether nothing is left to do."""
        if self._reforming is not None:
            survivors, result = self._reforming
            try:
                result.set_result(self._reform(survivors, uuid4().hex))
            except (StorageError, OSError) as error:
                result.set_exception(error if isinstance(error, StorageError) else StorageError(str(error)))
            finally:
                self._reforming = None
        server = self.ensemble.server
        if server is not None and time.monotonic() > self._purged + _PURGE:
            server.purge()
            self._purged = time.monotonic()
        if self._shared.session.ended is not None:
            self._go_on(self.ensemble.contacts())
        return self._step(self._shared)

    def _tend(self) -> None:
        self._tending.pause(_SOON)
        self.ensemble.tend()

    def _step(self, shared: ZooKeeperSlots) -> bool:
        state, _ = shared.state(self._woken)
        self.seen(state)
        present = shared.members(self._woken)
        self.ensemble.refresh(shared.session, self._woken)
        ids = [member.id for member in state.members]
        if self._member.id not in ids and not self._leaving:
            raise RemovedError("the others have removed it")
        if min(shared.session.steady, time.monotonic() - self._entered) < self._quiet():
            return False
        # A member that is in this state was there before it: who is not there now is gone.
        there = [id_ for id_ in ids if id_ in present]
        coordinates = bool(there) and there[0] == self._member.id
        if coordinates:
            state = self._judged(shared, state, set(ids) - set(there))
        return self._adapted(shared, self._votes_again(shared, state), coordinates=coordinates)

    def _votes_again(self, shared: ZooKeeperSlots, state: ClusterState) -> ClusterState:
        if self._member.id not in state.voteless or time.monotonic() < self._votes_from:
            return state
        self._votes_from = time.monotonic() + _VOTES_AGAIN
        try:
            check_server(self._settings)
        except AnalysisError as error:
            logger.warning("Member %s still cannot vote: %s", self._member.id, error)
            return state
        return self._without_votes(shared, lambda voteless: voteless - {self._member.id})

    def _adapted(self, shared: ZooKeeperSlots, state: ClusterState, *, coordinates: bool) -> bool:
        try:
            is_done = self.ensemble.adapt(shared.session, state, coordinates=coordinates)
        except NoServerError as error:
            # It holds what it holds, and goes on: only that others vote in its place, if any can.
            self._votes_from = time.monotonic() + _VOTES_AGAIN
            logger.warning("Member %s cannot vote, others do in its place: %s", self._member.id, error)
            self._without_votes(shared, lambda voteless: voteless | {self._member.id})
            return False
        if overdue := self.ensemble.overdue:
            logger.warning("Members %s were to vote, and have offered no server.", ", ".join(overdue))
            self._without_votes(shared, lambda voteless: voteless | {*overdue})
        return is_done

    def _without_votes(self, shared: ZooKeeperSlots, change: Callable[[set[str]], set[str]]) -> ClusterState:
        return self.seen(shared.propose(lambda state: without_votes(state, change({*state.voteless}))))

    def _judged(self, shared: ZooKeeperSlots, state: ClusterState, gone: Collection[str]) -> ClusterState:
        """Take out who is silent; those are waited for with whom the last replicas of partitions would go."""
        now = time.monotonic()
        self._missed = {member: self._missed.get(member, now) for member in gone}
        is_held_back = would_lose(state, gone) and now < max(self._missed.values()) + self._settings.grace
        if gone and not is_held_back:
            return self.seen(shared.propose(lambda newest: left(newest, gone)))
        if gone == set(state.silent):
            return state
        if gone:
            logger.warning("Members %s are silent, and waited for: they hold last replicas.", ", ".join(sorted(gone)))
        return self.seen(shared.propose(lambda newest: silenced(newest, gone)))

    def _go_on(self, contacts: Sequence[str]) -> None:
        """Begin another session, as the same member."""
        session = ZooKeeperSession(contacts, self._settings, self._wake.set)
        shared = ZooKeeperSlots(session, self._member.id)
        try:
            session.start(self._settings.patience)
            while not shared.go_on():
                threading.Event().wait(_SOON)
            self.ensemble.publish(session)
        except BaseException:
            session.close("it could not go on")
            raise
        logger.warning("Member %s goes on in another session, as nobody has missed it", self._member.id)
        self._shared.session.close("another one has begun")
        with self._changed:
            self._shared, self._entered = shared, time.monotonic()
            self._changed.notify_all()

    def _reform(self, survivors: Collection[str], cluster: str) -> ClusterState:
        contact = self.ensemble.alone() if self._member.id in survivors else None
        if contact is None:
            raise StorageError(
                f"Member {self._member.id} cannot form the survivors anew, as it does not know what was decided: its "
                f"server did not vote. Those that did: {', '.join(self.ensemble.voters())}."
            )
        self._shared.session.use([contact])
        deadline = time.monotonic() + _START
        while True:
            try:
                if self._shared.session.ended is not None:
                    self._go_on([contact])
                state = self._shared.propose(lambda state: reformed(state, survivors, cluster))
            except QuorumLostError:
                if time.monotonic() > deadline:
                    raise
            else:
                for member in self._shared.members():
                    if member not in survivors:
                        self._shared.dismiss(member)
                return self.seen(state)

    def _quiet(self) -> float:
        return _STEADY * self._settings.session

    def _woken(self, *_: Any) -> None:
        self._wake.set()

    def _end(self, reason: str) -> None:
        if not self._leaving:
            self._announcements.end(reason)
        self._close(reason)

    def _close(self, reason: str) -> None:
        with self._changed:
            self._over = self._over or reason
            self._changed.notify_all()
        self._rounds.stop()
        self._tending.stop()
        self._shared.session.close(reason)
        self.ensemble.stop()


@dataclass
class _Waits:
    """Since when a member waits for a majority, and when it was last told so."""

    since: float = field(default_factory=time.monotonic)
    told: float = -math.inf
