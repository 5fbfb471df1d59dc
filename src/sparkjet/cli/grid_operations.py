"""``grid drain`` and ``grid reform``: what an operator decides about the members of a grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sparkjet.errors import AnalysisError
from sparkjet.grid.access import Access
from sparkjet.grid.cluster_state import ClusterState, Member, is_drained
from sparkjet.grid.connections import Connections
from sparkjet.grid.errors import GridError, UnreachableError
from sparkjet.grid.requests import Drain, GetStatus, Leave, Reform, Status

_ANSWERS_WITHIN = 5.0
_FORMS_WITHIN = 180.0
_LOOK = 0.2


def drain(address: str, access: Access, told: Callable[[str], None], *, discard: bool = False) -> None:
    """Let others copy what a member holds, and end it; an attempt that was interrupted is gone on with by another one.

    Args:
        address: Of the member, as ``host:port``.
        access: Token and certificates.
        told: Called with each line for the operator.
        discard: End it though it is the last one, with all that the grid holds.

    Raises:
        AnalysisError: It is the last one.
        GridError: It does not answer any more.
    """
    connections, uri = Connections(access), access.uri_of(address)
    try:
        member = _status(connections, uri)
        if _others_stay(member):
            connections.ask(uri, Drain(), int)
            _wait_until_drained(connections, uri, told)
        elif not discard:
            message = (
                f"{address} is the last member: what the grid holds would be gone. Copy it elsewhere first (python -m "
                "sparkjet snapshots export), or end the grid with --discard."
            )
            raise AnalysisError(message)
        connections.ask(uri, Leave(discard), str)
        told(f"member {member.member} leaves")
        while _answers(connections, uri):
            time.sleep(_LOOK)
    finally:
        connections.close()
    told(f"member {member.member} has left")


def reform(addresses: Sequence[str], access: Access) -> tuple[ClusterState, list[Member]]:
    """Let members that have lost their majority go on without the others; the state, and who is not in it any more.

    Args:
        addresses: Of all members that are left, as ``host:port``.
        access: Token and certificates.

    Raises:
        AnalysisError: One of them does not answer, or is of another grid; or they have their majority.
        GridError: None of them knows what was decided.
    """
    connections = Connections(access)
    try:
        found = {uri: _survivor(connections, uri) for uri in map(access.uri_of, addresses)}
        clusters = {status.state.cluster for status in found.values()}
        if len(clusters) > 1:
            message = (
                f"{', '.join(addresses)} are of different grids ({', '.join(sorted(clusters))}): name those of one."
            )
            raise AnalysisError(message)
        ids = [status.member for status in found.values()]
        # Who has seen the newest state has lost the least.
        uris = sorted(found, key=lambda uri: -found[uri].state.version)
        voting = [uri for uri in uris if found[uri].member in found[uri].voters]
        if not voting:
            message = (
                f"none of {', '.join(addresses)} has voted, so that none knows what was decided. What the grid held is "
                "lost: end its members, start new ones, and go on from a copy (python -m sparkjet snapshots import)."
            )
            raise AnalysisError(message)
        before = found[voting[0]].state
        state = connections.ask(voting[0], Reform(ids), ClusterState, _FORMS_WITHIN)
    finally:
        connections.close()
    stay = {member.id for member in state.members}
    return state, [member for member in before.members if member.id not in stay]


def _others_stay(member: Status) -> bool:
    """Whether members are left if this one goes."""
    state = member.state
    return bool({each.id for each in state.members} - {*state.draining, member.member})


def _wait_until_drained(connections: Connections, uri: str, told: Callable[[str], None]) -> None:
    before = None
    while True:
        found = _status(connections, uri)
        if is_drained(found.state, found.member):
            return
        left = sum(found.member in row.replicas for row in found.state.rows)
        if left != before:
            told(f"member {found.member}: {left} replicas are yet to be copied by others")
            before = left
        time.sleep(_LOOK)


def _status(connections: Connections, uri: str) -> Status:
    return connections.ask(uri, GetStatus(), Status, _ANSWERS_WITHIN)


def _answers(connections: Connections, uri: str) -> bool:
    try:
        _status(connections, uri)
    except GridError:
        return False
    return True


def _survivor(connections: Connections, uri: str) -> Status:
    try:
        found = _status(connections, uri)
    except UnreachableError as error:
        message = f"{error} Name only members that are left."
        raise AnalysisError(message) from error
    if not found.frozen:
        message = f"{uri} has its majority, which takes out by itself who is gone: there is nothing to form anew."
        raise AnalysisError(message)
    return found
