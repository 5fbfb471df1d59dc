"""The status of a grid for programs: its members, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkjet_grid.cluster_state import ClusterState, Member
    from sparkjet_grid.errors import GridError
    from sparkjet_grid.messages import Status


def described(found: Mapping[str, Status | GridError]) -> dict[str, Any]:
    """The grid, and the status or the error of each member, as JSON has it."""
    there = answers_of(found)
    known = there or {id_: each for id_, each in found.items() if not isinstance(each, Exception)}
    newest = max(known.values(), key=lambda each: each.state.version)
    state = newest.state
    return {
        "cluster": state.cluster,
        "frozen": not there,
        "partitions": len(state.rows),
        "backupCount": state.backup_count,
        "voters": list(newest.voters),
        "leaving": list(state.draining),
        "lost": sorted(state.lost),
        "members": [_described(state, member, found[member.id]) for member in state.members],
    }


def _described(state: ClusterState, member: Member, status: Status | GridError) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": member.id,
        "address": member.uri.partition("//")[2],
        "host": member.host,
        "primaryOf": sum(row.replicas[:1] == (member.id,) for row in state.rows),
        "backupOf": sum(member.id in row.replicas[1:] for row in state.rows),
    }
    if isinstance(status, Exception):
        return {**told, "error": {"condition": status.condition, "message": str(status)}}
    numbers = {name: getattr(status, name) for name in ("copying", "entries", "used", "limit", "frozen")}
    return {**told, **numbers}


def answers_of(found: Mapping[str, Status | GridError]) -> dict[str, Status]:
    """The status of the members that answer and are not cut off."""
    return {id_: each for id_, each in found.items() if not isinstance(each, Exception) and not each.frozen}
