"""A membership in a cluster, from its first ZooKeeper session to its end, maintained by a separate thread."""

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
"""Seconds between two rounds if nothing wakes the thread."""
_SOON = 0.1
"""The same while something is left to do."""
_VOTES_AGAIN = 60.0
"""Seconds after which a voteless member checks whether it can vote."""
_TELLS = 60.0
"""Seconds after which it is logged again that a member waits, and for what."""
_START = 60.0
"""Seconds that a server may take to start on a busy machine."""
_PURGE = 5.0
"""Seconds between two purges of files that are no longer needed."""
_GOES = 3
"""Multiple of the patience for which a leaving voter waits until others go on without its server."""
_STEADY = 2
"""Session timeouts after an interruption in which nobody is declared dead: others were interrupted as well."""


class Membership:
    """The membership of one member. A session may follow another, as long as the cluster's state names the member.

    Its thread applies states, runs a server if the member should vote and, on the coordinator, the first member that is
    present, removes dead members and changes the voters.

    Args:
        member: This member.
        settings: Of the control plane.
        announcements: By which the member hears of changes.
        reached: Whether any other member answers this one, even without a majority.
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
        """Join the cluster, and start to maintain the membership."""
        contacts = seeds if new is None else [self.ensemble.start_first()]
        self._shared = ZooKeeperSlots(ZooKeeperSession(contacts, self._settings, self._wake.set), self._member.id)
        try:
            self._shared.session.start(self._settings.patience if new is None else _START, self.ensemble.check)
            if new is not None:
                self._shared.create(new)
                self.ensemble.offer(self._shared.session)
            self._shared.enter()
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
        """End the membership; a second call does nothing."""
        if self._leaving:
            return
        self._leaving = True
        try:
            if self.call(lambda shared: shared.propose(lambda state: departed(state, self._member.id))).members:
                self.call(lambda shared: shared.dismiss(self._member.id))
                self._wake.set()
                # A voter must not go before another member votes in its place.
                deadline = time.monotonic() + _GOES * self._settings.patience
                while self.ensemble.server is not None and self._over is None and time.monotonic() < deadline:
                    threading.Event().wait(_SOON)
        except QuorumLostError as error:
            # There is nobody to tell.
            logger.info("Member %s leaves without the others: %s", self._member.id, error)
        finally:
            self._announcements.close()
            self._close("it has left")

    def call(self, request: Callable[[ZooKeeperSlots], T]) -> T:
        """The answer to a request in the current session or the next one; the request must be idempotent."""
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
        """Note and announce a state, unless a newer one is known; returns it."""
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
                # It would replace the earlier command, which would wait in vain.
                raise StorageError(f"Member {self._member.id} is being re-formed already, by another command.")
            self._reforming = frozenset(survivors), result
        self._wake.set()
        try:
            return result.result(2 * _START)
        except FutureTimeoutError:
            message = f"Member {self._member.id} was not re-formed within {2 * _START:.0f} s; its log may say why."
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
        """Wait for a majority; a member that hears from nobody for a long time is cut off, and ends."""
        if self._over is not None:
            return
        now, why = time.monotonic(), f"{error} {self.ensemble.trouble()}".rstrip()
        if now > self._waits.told + _TELLS:
            logger.warning("Member %s waits for a majority: %s", self._member.id, why)
            self._waits.told = now
        if now < self._waits.since + self._settings.cut_off:
            return
        # Otherwise a failure of all servers, such as a full disk, would end all members, with all that they hold.
        if self._reached():
            logger.warning("Member %s goes on waiting, as other members answer it.", self._member.id)
            self._waits = _Waits()
        else:
            self._end(f"{why} No other member has answered either.")

    def _round(self) -> bool:
        """Read what has changed, and do this member's part; returns whether nothing is left to do."""
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
            self._resume(self.ensemble.contacts())
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
        # Members were present before this state named them, so those that are not present now are gone.
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
            # The member goes on, and keeps its entries; others vote in its place, if any can.
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
        """Remove silent members, but first wait for those that hold the last replicas of partitions."""
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

    def _resume(self, contacts: Sequence[str]) -> None:
        """Begin another session as the same member."""
        session = ZooKeeperSession(contacts, self._settings, self._wake.set)
        shared = ZooKeeperSlots(session, self._member.id)
        try:
            session.start(self._settings.patience)
            while not shared.reenter():
                threading.Event().wait(_SOON)
            self.ensemble.offer(session)
        except BaseException:
            session.close("it could not go on")
            raise
        logger.warning("Member %s goes on in another session, as nobody has missed it", self._member.id)
        self._shared.session.close("another one has begun")
        with self._changed:
            self._shared, self._entered = shared, time.monotonic()
            self._changed.notify_all()

    def _reform(self, survivors: Collection[str], cluster: str) -> ClusterState:
        contact = self.ensemble.restart_alone() if self._member.id in survivors else None
        if contact is None:
            raise StorageError(
                f"Member {self._member.id} cannot re-form the survivors, as it does not know what was decided: its "
                f"server did not vote. Those that did: {', '.join(self.ensemble.voters())}."
            )
        self._shared.session.use([contact])
        deadline = time.monotonic() + _START
        while True:
            try:
                if self._shared.session.ended is not None:
                    self._resume([contact])
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
    """Since when a member has been waiting for a majority, and when that was last logged."""

    since: float = field(default_factory=time.monotonic)
    told: float = -math.inf
