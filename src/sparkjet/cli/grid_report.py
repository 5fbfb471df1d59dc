"""What ``grid status`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkjet.grid.cluster_state import ClusterState, Member, may_start
from sparkjet.grid.voters import survives

if TYPE_CHECKING:
    from sparkjet.grid.errors import GridError
    from sparkjet.grid.requests import Status

_HEAD = "member", "address", "host", "primary of", "backup of", "copying", "entries", "memory", ""


def report(found: Mapping[str, Status | GridError]) -> list[str]:
    """Its lines.

    Args:
        found: Of each member, by its id, how it is, or why it does not answer. At least one does.
    """
    answers = [each for each in found.values() if not isinstance(each, Exception)]
    newest = max(answers, key=lambda each: each.state.version)
    state, voters = newest.state, newest.voters
    copying = sum(member not in row.replicas for row in state.rows for member in row.target)
    fewest = min((len(row.replicas) for row in state.rows), default=0)
    counts = f"{len(state.members)} members, {state.largest} at most; {len(state.rows)} partitions"
    lines = [
        f"cluster {state.cluster}: {counts} with {state.backup_count} backups wanted",
        f"{copying} replicas are being copied; every partition has {fewest} or more",
        f"{len(voters)} voters; {_survives(state, fewest, voters)}",
    ]
    if all(each.frozen for each in answers):
        lines.append(
            "FROZEN: the majority is gone. If the others are dead for good, those that are left can go on without them:"
            " python -m sparkjet grid reform"
        )
    if state.draining:
        lines.append(f"to leave: {', '.join(state.draining)}")
    if state.lost:
        lines.append(f"partitions that have lost everything once: {_shown(sorted(state.lost))}")
    table = [_HEAD, *(_row(state, member, found[member.id], voters) for member in state.members)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return lines + ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def _row(state: ClusterState, member: Member, status: Status | GridError, voters: Sequence[str]) -> tuple[str, ...]:
    primary = sum(row.replicas[:1] == (member.id,) for row in state.rows)
    backup = sum(member.id in row.replicas[1:] for row in state.rows)
    if isinstance(status, Exception):
        told: tuple[str, ...] = "?", "?", "?", "does not answer"
    else:
        role = "is cut off" if status.frozen else "votes" if member.id in voters else ""
        told = str(status.copying), str(status.entries), f"{_mb(status.used)} of {_mb(status.limit)}", role
    return member.id, member.uri.partition("//")[2], member.host, str(primary), str(backup), *told


def _survives(state: ClusterState, replicas: int, voters: Sequence[str]) -> str:
    """How many more members may be lost at once, and what does not allow more."""
    if not may_start(state):
        return f"no query starts here, on half of {state.largest} members or fewer: the others may go on elsewhere"
    by_data, by_votes = max(replicas - 1, 0), survives(state, voters)
    reason = (
        "of every partition one replica must stay"
        if by_data <= by_votes
        else f"more than half of the voters must stay, if voters are lost, and more than half of {state.largest}"
    )
    return f"{min(by_data, by_votes)} more members may be lost at once: {reason}"


def _mb(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB"


def _shown(partitions: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, partitions[:most])) + (", …" if len(partitions) > most else "")
