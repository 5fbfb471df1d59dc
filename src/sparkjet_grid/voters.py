"""Which members vote: one, three or five, wherever they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sparkjet_grid.cluster_state import ClusterState

_THREE, _FIVE = 3, 5


def wanted_voters(state: ClusterState, voting: Collection[str]) -> list[str]:
    """Ids of the members that are to vote; who votes already stays.

    Never two: one that is gone would stop both. Nobody who cannot, unless nobody can. Five only where a partition
    survives two losses as well. Those on other hosts come first, then those that joined first.
    """
    members = [member for member in state.members if member.id not in {*state.draining, *state.voteless}]
    members = members or list(state.members)
    most = _FIVE if state.backup_count > 1 else _THREE
    size = max((number for number in (1, _THREE, most) if number <= len(members)), default=0)
    chosen = [member for member in members if member.id in voting][:size]
    while len(chosen) < size:
        on_host = Counter(member.host for member in chosen)
        chosen.append(min((m for m in members if m not in chosen), key=lambda member: on_host[member.host]))
    return [member.id for member in chosen]


def survives(state: ClusterState, voting: Collection[str], there: Collection[str]) -> int:
    """How many more members may be lost at once, whichever they are, so that the cluster goes on and queries start.

    Of what the members hold nothing is said: that depends on the backups, and on what is still being copied.
    """
    votes = len(set(voting) & set(there)) - (len(voting) // 2 + 1)
    size = sum(member.id in there for member in state.members) - (state.largest // 2 + 1)
    return max(min(votes, size), 0)
