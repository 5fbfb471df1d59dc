"""Contact with a cluster: the newest state that a client knows, and requests that any member can answer."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from sparkjet_grid.access import Access
from sparkjet_grid.background import in_background
from sparkjet_grid.cluster_state import ClusterState, Member
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import AnalysisError, GridError, MovedError, QuorumLostError, UnreachableError
from sparkjet_grid.messages import GetState, GetStatus, Request, Status

T = TypeVar("T")

AWAY = MovedError, QuorumLostError, UnreachableError
"""Errors after which another attempt, with a newer state or at another member, may succeed."""
_ANSWERS_WITHIN = 3.0
_LONGEST_PAUSE = 0.5
_SHOWN = 10
_LOOK = 1.0
"""Seconds between two checks whether the member that a call waits for is still there."""
_SUSPECTED = 10.0
"""Seconds for which a member that has not answered is asked last."""


class Contact:
    """A client's knowledge of a cluster. Thread-safe.

    Args:
        addresses: Of some members, as ``host:port``; the others are found by them.
        access: Token and certificates.
        host: The machine of the client, whose replicas are read first.
        patience: Seconds after which attempts are given up.
        cluster: Its id; by default that of the members given, which must be of one cluster.

    Raises:
        AnalysisError: An address is malformed.
    """

    def __init__(
        self, addresses: Sequence[str], access: Access, host: str | None, patience: float, cluster: str | None
    ) -> None:
        self.host = host or socket.gethostname()
        self.patience = patience
        self.connections = Connections(access)
        self._addresses = [access.uri_of(address) for address in addresses]
        self._lock = threading.Lock()
        self._cluster = cluster
        self._state: ClusterState | None = None
        self._suspected: dict[str, float] = {}

    def state(self) -> ClusterState:
        """The newest known state; if there is none yet, members are asked until the patience runs out."""
        # An election among the members must not fail the query of a Python worker that has just started either.
        return self._state or self.attempts()(lambda: self.newer(-1))

    def newer(self, than: int, seconds: float = 1.0) -> ClusterState:
        """Ask members for a newer state, waiting some time for one; returns the newest."""
        if self._cluster is None:
            # Otherwise the first one to answer would decide which grid has the query's home.
            states = [*self._answers(GetState(), ClusterState, _ANSWERS_WITHIN)]
            self._check_one([state.cluster for state in states])
            return self._take(max(states, key=lambda state: state.version))
        for found in self._answers(GetState(than, seconds), ClusterState, seconds + _ANSWERS_WITHIN):
            if found.cluster == self._cluster:
                return self._take(found)
        raise GridError(
            f"the grid was re-formed: the members that answer are no longer cluster {self._cluster}. Start the query "
            "again; it goes on if what its newest record names is still there."
        )

    def is_replaced(self, version: int, members: Iterable[str]) -> bool:
        """Whether any of some members has a newer state than this one, or does not answer.

        If so, entries that they do not hold are not lost: a member drops what is no longer its own as soon as it hears
        of a new state, and a former primary may not have what its successor has acknowledged.
        """
        answers = [in_background(partial(self._state_of, member), f"grid-state-{member}") for member in members]
        for answer in answers:
            try:
                found = answer.result()
            except AWAY:
                return True
            if found.version > version:
                if found.cluster == self._cluster:
                    # So that no member that lags behind is asked for it again.
                    self._take(found)
                return True
        return False

    def _state_of(self, member: str) -> ClusterState:
        return self.connections.ask(self.uri(member), GetState(), ClusterState, _ANSWERS_WITHIN)

    def any_status(self) -> Status:
        """The newest status of the members that answer, even if they are cut off from the others."""
        found = [*self._answers(GetStatus(), Status, _ANSWERS_WITHIN)]
        self._check_one([status.state.cluster for status in found])
        return max(found, key=lambda status: status.state.version)

    def _answers(self, request: Request, answer: type[T], seconds: float) -> Iterator[T]:
        """The answers of members, asked one by one as answers are consumed; an error if none answers."""
        failures: list[str] = []
        answered = False
        for uri in self._in_order(dict.fromkeys([*self._uris(), *self._addresses])):
            try:
                found = self.connections.ask(uri, request, answer, seconds)
            except AWAY as error:
                self._suspect(uri)
                failures.append(str(error))
            else:
                answered = True
                yield found
        if not answered:
            raise UnreachableError(f"no member of the grid answers: {' '.join(failures)}")

    def ask(self, request: Request, answer: type[T]) -> T:
        """The answer of any member, tried until the patience runs out."""
        return self.attempts()(lambda: self.ask_once(request, answer))

    def ask_once(self, request: Request, answer: type[T]) -> T:
        """Like :meth:`ask`, in one attempt: members are asked one by one until one answers."""
        failures: list[GridError] = []
        version = self.state().version
        for uri in self._in_order(self._uris()):
            try:
                return self.connections.ask(uri, request, answer)
            except AWAY as error:
                self._suspect(uri)
                failures.append(error)
        # All members may have been replaced since.
        self.newer(version, 0.0)
        raise failures[-1]

    def attempts(self) -> Retrying:
        """Retries what a newer state may mend, with growing pauses, until the patience runs out."""
        return Retrying(
            stop=stop_after_delay(self.patience),
            wait=wait_random_exponential(0.05, max=_LONGEST_PAUSE),
            retry=retry_if_exception_type(AWAY),
            reraise=True,
        )

    def awaited(self, answer: Future[T], member: str, seconds: float) -> T:
        """The result of a call to a member; the call is abandoned if the member leaves."""
        until = time.monotonic() + seconds
        while not wait([answer], _LOOK).done:
            # A call to a member that is paused, or whose machine is gone, lasts until its deadline.
            self.newer(self.state().version, 0.0)
            # And a member whose network was cut may have forgotten the call.
            self.connections.nudge(self.uri(member))
            if time.monotonic() > until:
                raise UnreachableError(f"member {member} has not answered within {seconds:.0f} s.")
        return answer.result()

    def nearest(self, members: Sequence[str]) -> str:
        """One of some members on this host, or else the first."""
        hosts = {member.id: member.host for member in self.state().members}
        return next((each for each in members if hosts.get(each) == self.host), members[0])

    def member(self, id_: str) -> Member | None:
        """A member by its id; None if it has left."""
        return next((member for member in self.state().members if member.id == id_), None)

    def uri(self, id_: str) -> str:
        """The address of a member."""
        member = self.member(id_)
        if member is None:
            raise MovedError(f"member {id_} has left.")
        return member.uri

    def is_on_this_host(self, id_: str) -> bool:
        """Whether a member is on the machine of the client."""
        member = self.member(id_)
        return member is not None and member.host == self.host

    def lost_text(self, partitions: Sequence[int]) -> tuple[str, str]:
        """Which partitions are lost, and which members held them last, for messages."""
        lost, more = self.state().lost, ", …" if len(partitions) > _SHOWN else ""
        holders = sorted({member for each in partitions for member in lost.get(each, ())})
        by = f"Members {', '.join(holders)} held them last, and are gone. " if holders else ""
        return (
            ", ".join(map(str, partitions[:_SHOWN])) + more,
            f"{by}More members were lost at once than --backup-count covers.",
        )

    def _uris(self) -> list[str]:
        """Members on this host first, then the others in random order, so that clients do not all ask the same one."""
        members = list(self._state.members) if self._state is not None else []
        random.shuffle(members)
        members.sort(key=lambda member: member.host != self.host)
        return [member.uri for member in members]

    def _in_order(self, uris: Iterable[str]) -> list[str]:
        # Otherwise every request would wait for a member that is paused, or whose machine is gone.
        since = time.monotonic() - _SUSPECTED
        return sorted(uris, key=lambda uri: self._suspected.get(uri, since) > since)

    def _check_one(self, clusters: Sequence[str]) -> None:
        if len(set(clusters)) > 1:
            shown = ", ".join(uri.partition("//")[2] for uri in self._addresses)
            message = f"{shown} are members of different grids ({', '.join(sorted(set(clusters)))}): name those of one."
            raise AnalysisError(message)

    def _suspect(self, uri: str) -> None:
        self._suspected[uri] = time.monotonic()

    def _take(self, found: ClusterState) -> ClusterState:
        with self._lock:
            self._cluster = found.cluster
            if self._state is None or found.version > self._state.version:
                self._state = found
            return self._state
