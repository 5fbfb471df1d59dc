"""``grid reform``: an operator's decision about a grid that has lost its majority."""

from __future__ import annotations

from collections.abc import Sequence

from sparkjet.errors import AnalysisError
from sparkjet_grid.access import Access
from sparkjet_grid.cluster_state import ClusterState, Member
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import UnreachableError
from sparkjet_grid.messages import GetStatus, Reform, Status

_ANSWERS_WITHIN = 5.0
_FORMS_WITHIN = 180.0


def reform(addresses: Sequence[str], access: Access) -> tuple[ClusterState, list[Member]]:
    """Let members that have lost their majority continue without the others; returns the state, and those dropped.

    Args:
        addresses: Addresses of all remaining members, as ``host:port``.
        access: Token and certificates.

    Raises:
        AnalysisError: One of them does not answer, or is in another grid; or they have their majority.
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
        # The member that has seen the newest state has lost the least.
        uris = sorted(found, key=lambda uri: -found[uri].state.version)
        voting = [uri for uri in uris if found[uri].member in found[uri].voters]
        if not voting:
            message = (
                f"none of {', '.join(addresses)} has voted, so that none knows what was decided. What the grid held is "
                "lost: end its members, start new ones, and go on from a copy (python -m sparkjet snapshots copy)."
            )
            raise AnalysisError(message)
        before = found[voting[0]].state
        state = connections.ask(voting[0], Reform(ids), ClusterState, _FORMS_WITHIN)
    finally:
        connections.close()
    stay = {member.id for member in state.members}
    return state, [member for member in before.members if member.id not in stay]


def _status(connections: Connections, uri: str) -> Status:
    return connections.ask(uri, GetStatus(), Status, _ANSWERS_WITHIN)


def _survivor(connections: Connections, uri: str) -> Status:
    try:
        found = _status(connections, uri)
    except UnreachableError as error:
        raise AnalysisError(f"{error} Name only members that are left.") from error
    if not found.frozen:
        message = f"{uri} has its majority, which removes lost members by itself: there is nothing to reform."
        raise AnalysisError(message)
    return found
