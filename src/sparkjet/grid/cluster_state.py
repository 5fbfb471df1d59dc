"""The cluster's state: its members and the replicas of each partition, as every member sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Member(msgspec.Struct, frozen=True):
    """A member of a grid, from its start to its end; one that is started again is another member.

    Attributes:
        id: Unlike that of any other member ever.
        uri: Where its Flight server listens.
        host: The machine; replicas of a partition are on several, if there are several.
    """

    id: str
    uri: str
    host: str


class Row(msgspec.Struct, frozen=True):
    """The replicas of a partition.

    Attributes:
        replicas: Ids of the members that hold all its entries, the primary first; empty if none is left.
        target: Ids of those that should; who is in here and not yet in ``replicas`` is copying.
        version: Counts the changes of this row.
    """

    replicas: tuple[str, ...]
    target: tuple[str, ...]
    version: int


class ClusterState(msgspec.Struct, frozen=True):
    """What members agree on; a change makes another state, of the next version.

    Attributes:
        cluster: Id of the cluster, unlike that of any other; survivors that are formed anew get another one.
        version: Counts the states.
        members: In the order in which they joined.
        largest: The most members that there ever were.
        backup_count: Number of backups of each partition that are wanted.
        rows: Of each partition.
        lost: Of partitions that lost all their replicas: ids of the members that held the last ones.
    """

    cluster: str
    version: int
    members: tuple[Member, ...]
    largest: int
    backup_count: int
    rows: tuple[Row, ...]
    lost: dict[int, tuple[str, ...]] = {}


def ready(state: ClusterState, member: str, rows: Mapping[int, int]) -> ClusterState:
    """The state in which a member holds partitions whose rows are still of these versions."""
    changed = list(state.rows)
    for partition, version in rows.items():
        row = changed[partition]
        if row.version == version and member in row.target and member not in row.replicas:
            have = {*row.replicas, member}
            replicas = row.target if have >= set(row.target) else (*row.replicas, member)
            changed[partition] = msgspec.structs.replace(row, replicas=replicas, version=version + 1)
    if changed == list(state.rows):
        return state
    return msgspec.structs.replace(state, version=state.version + 1, rows=tuple(changed))


def left(state: ClusterState, gone: Iterable[str]) -> ClusterState:
    """The state after some members have left."""
    gone = set(gone)
    if not gone & {member.id for member in state.members}:
        return state
    members = tuple(member for member in state.members if member.id not in gone)
    rows, lost = [], dict(state.lost)
    wanted = min(state.backup_count, len(members) - 1) + 1
    for partition, row in enumerate(state.rows):
        replicas = tuple(each for each in row.replicas if each not in gone)
        target = tuple(each for each in row.target if each not in gone)
        if not replicas:
            lost[partition] = row.replicas
            replicas = target[:1] or tuple(member.id for member in members[:1])
            target = target or replicas
        others = [members[(partition + shift) % len(members)].id for shift in range(len(members))]
        target = (*target, *(each for each in others if each not in target))[:wanted]
        same = (replicas, target) == (row.replicas, row.target)
        rows.append(row if same else Row(replicas, target, row.version + 1))
    return msgspec.structs.replace(state, version=state.version + 1, members=members, rows=tuple(rows), lost=lost)


def joined(state: ClusterState, member: Member) -> ClusterState:
    """The state after a member has joined."""
    members = (*state.members, member)
    rows = []
    for partition, row in enumerate(state.rows):
        wanted = min(state.backup_count, len(members) - 1) + 1
        order = [members[(partition + shift) % len(members)].id for shift in range(len(members))][:wanted]
        replicas = row.replicas or tuple(order[:1])
        if (replicas, tuple(order)) == (row.replicas, row.target):
            rows.append(row)
        else:
            rows.append(Row(replicas, tuple(order), row.version + 1))
    return msgspec.structs.replace(
        state, version=state.version + 1, members=members, largest=max(state.largest, len(members)), rows=tuple(rows)
    )
