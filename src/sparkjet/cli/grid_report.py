"""The output of ``grid status``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkjet_grid.cluster_state import ClusterState, Member, may_start, tolerated_losses
from sparkjet_grid.status import answers_of

if TYPE_CHECKING:
    from sparkjet_grid.errors import GridError
    from sparkjet_grid.messages import Status

_HEAD = "member", "address", "host", "primary of", "backup of", "copying", "entries", "memory", ""


def report(found: Mapping[str, Status | GridError]) -> list[str]:
    """The lines of the output.

    Args:
        found: For each member, by its id, its status, or why it does not answer. At least one does.
    """
    answers = {id_: each for id_, each in found.items() if not isinstance(each, Exception)}
    # A member that is cut off knows the grid as it was.
    there = answers_of(found)
    newest = max((there or answers).values(), key=lambda each: each.state.version)
    state, voters = newest.state, newest.voters
    copying = sum(member not in row.replicas for row in state.rows for member in row.target)
    counts = f"{len(state.members)} members, {state.largest} at most; {len(state.rows)} partitions"
    fewest = _fewest(state, answers)
    lines = [
        f"cluster {state.cluster}: {counts} with {state.backup_count} backups wanted",
        f"{copying} replicas are being copied; every partition has {fewest} or more on members that answer",
        f"{len(voters)} voters, of which {len(set(voters) & set(there))} answer; {_survives(state, voters, there)}",
    ]
    if not there:
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


def _survives(state: ClusterState, voters: Sequence[str], there: Collection[str]) -> str:
    """How many more of the present members may be lost at once, and what does not allow more."""
    if not there:
        return "0 more members may be lost at once: the majority is gone"
    if not may_start(state):
        return f"no query starts here, on half of {state.largest} members or fewer: the others may go on elsewhere"
    by_data, by_votes = max(_fewest(state, there) - 1, 0), tolerated_losses(state, voters, there)
    reason = (
        "of every partition one replica must stay"
        if by_data <= by_votes
        else f"more than half of the voters must stay, if voters are lost, and more than half of {state.largest}"
    )
    return f"{min(by_data, by_votes)} more members may be lost at once: {reason}"


def _fewest(state: ClusterState, there: Collection[str]) -> int:
    """The least number of replicas that some members have of a partition."""
    return min((sum(member in there for member in row.replicas) for row in state.rows), default=0)


def _mb(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB"


def _shown(partitions: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, partitions[:most])) + (", …" if len(partitions) > most else "")
