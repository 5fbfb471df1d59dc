"""The cluster's state: its members and the replicas of each partition, as every member sees them.

Members agree on what the functions below make of a state. These are pure and idempotent: a member that does not know
whether its change was made applies it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from sparkjet_grid.errors import AnalysisError, StorageError
from sparkjet_grid.partition_table import MOST_BACKUPS, MOST_PARTITIONS, PARTITIONS, placed

GRACE = 40.0
"""Seconds to wait for members that hold the last replicas of partitions; less than the patience of clients, which wait
as well."""
_THREE, _FIVE = 3, 5


class Member(msgspec.Struct, frozen=True):
    """A member of a grid, from its start to its end; after a restart it is another member.

    Attributes:
        id: Unique among all members that ever were.
        uri: Of its Flight server.
        host: Its machine; the replicas of a partition are spread over machines.
    """

    id: str
    uri: str
    host: str


class Row(msgspec.Struct, frozen=True):
    """The replicas of a partition.

    Attributes:
        replicas: Ids of the members that hold all its entries, the primary first.
        target: Ids of those that should: a member that is not yet in ``replicas`` is copying, and one that is no
            longer in here stays in ``replicas`` until all of these are.
        version: Counts the changes of this row.
    """

    replicas: tuple[str, ...]
    target: tuple[str, ...]
    version: int


class ClusterState(msgspec.Struct, frozen=True):
    """The state that members agree on; a change makes a new state, with the next version.

    Attributes:
        cluster: Unique id of the cluster; survivors that are re-formed get another one.
        version: Counts the states.
        members: In the order in which they joined.
        largest: The most members that there ever were, not counting those that have left in order.
        backup_count: Number of backups that each partition should have.
        rows: One for each partition.
        lost: By partition that has lost all its replicas and was emptied, ids of the members that held the last ones.
        draining: Ids of members that are about to leave, and get no replicas.
        silent: Ids of silent members that are waited for, as they hold the last replicas of partitions.
        voteless: Ids of members that cannot run a server, and so cannot vote.
    """

    cluster: str
    version: int
    members: tuple[Member, ...]
    largest: int
    backup_count: int
    rows: tuple[Row, ...]
    lost: dict[int, tuple[str, ...]] = {}
    draining: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    voteless: tuple[str, ...] = ()

    @property
    def present(self) -> int:
        """The number of members that are not silent."""
        return len(self.members) - len(self.silent)


def first(cluster: str, member: Member, *, partitions: int = PARTITIONS, backup_count: int = 1) -> ClusterState:
    """The state of a new cluster of one member."""
    if not 0 <= backup_count <= MOST_BACKUPS:
        message = f"backup_count is {backup_count}: a partition has 0 to {MOST_BACKUPS} backups; 1 is the default."
        raise AnalysisError(message)
    if not 1 <= partitions <= MOST_PARTITIONS:
        message = f"partitions is {partitions}: there are 1 to {MOST_PARTITIONS}; {PARTITIONS} is the default."
        raise AnalysisError(message)
    nobody = Row((), (), 0)
    return _changed(ClusterState(cluster, 0, (), 0, backup_count, (nobody,) * partitions), (member,))


def joined(state: ClusterState, member: Member) -> ClusterState:
    """Add a member; it gets its share of the replicas, which it has yet to copy."""
    if any(member.id == other.id for other in state.members):
        return state
    return _changed(state, (*state.members, member))


def left(state: ClusterState, gone: Collection[str]) -> ClusterState:
    """Remove members: backups are promoted, and partitions with too few replicas get others.

    Partitions that lose all their replicas are emptied, and recorded in :attr:`ClusterState.lost`.
    """
    stay = tuple(member for member in state.members if member.id not in gone)
    return state if stay == state.members else _changed(state, stay)


def departed(state: ClusterState, member: str) -> ClusterState:
    """Remove a member that leaves in order: as it cannot go on elsewhere, the cluster's size no longer counts it."""
    found = left(state, [member])
    if found is state:
        return state
    return msgspec.structs.replace(found, largest=state.largest - 1)


def would_lose(state: ClusterState, gone: Collection[str]) -> bool:
    """Whether partitions would lose their last replica with some members."""
    return any(row.replicas and set(row.replicas) <= set(gone) for row in state.rows)


def silenced(state: ClusterState, silent: Collection[str]) -> ClusterState:
    """Mark the members that are silent, and no others."""
    found = tuple(member.id for member in state.members if member.id in silent)
    return state if found == state.silent else msgspec.structs.replace(state, version=state.version + 1, silent=found)


def without_votes(state: ClusterState, voteless: Collection[str]) -> ClusterState:
    """Mark the members that cannot vote, and no others."""
    found = tuple(member.id for member in state.members if member.id in voteless)
    return (
        state if found == state.voteless else msgspec.structs.replace(state, version=state.version + 1, voteless=found)
    )


def drained(state: ClusterState, member: str) -> ClusterState:
    """Mark a member that is about to leave: it holds its replicas until others have copied them."""
    others = {other.id for other in state.members} - {*state.draining, member}
    if not others:
        raise StorageError(f"Member {member} cannot be drained: it is the last one, and what it holds would be gone.")
    if member in state.draining or all(member != other.id for other in state.members):
        return state
    return _changed(msgspec.structs.replace(state, draining=(*state.draining, member)), state.members)


def is_drained(state: ClusterState, member: str) -> bool:
    """Whether a member holds no replica, so that nothing is lost when it leaves."""
    return all(member not in row.replicas for row in state.rows)


def ready(state: ClusterState, member: str, versions: Mapping[int, int]) -> ClusterState:
    """Make a member a replica of partitions that it has copied, except those whose row has changed meanwhile."""
    rows = list(state.rows)
    for partition, version in versions.items():
        row = rows[partition]
        if row.version == version and member in row.target and member not in row.replicas:
            rows[partition] = _row(row, (*row.replicas, member), row.target)
    changed = tuple(rows)
    return state if changed == state.rows else msgspec.structs.replace(state, version=state.version + 1, rows=changed)


def reformed(state: ClusterState, survivors: Collection[str], cluster: str) -> ClusterState:
    """Re-form the survivors as a cluster with another id, in which they are the majority."""
    if state.cluster == cluster:
        return state
    formed = left(state, [member.id for member in state.members if member.id not in survivors])
    return msgspec.structs.replace(formed, cluster=cluster, version=state.version + 1, largest=len(formed.members))


def may_start(state: ClusterState) -> bool:
    """Whether a query may start: only where more than half of the members are, as the others may go on elsewhere."""
    return 2 * state.present > state.largest


def _changed(state: ClusterState, members: tuple[Member, ...]) -> ClusterState:
    ids = {member.id for member in members}
    draining = tuple(member for member in state.draining if member in ids)
    # If all that were to stay are gone, those that were to leave must hold what there is.
    holding = [member for member in members if member.id not in draining] or members
    replicas = [tuple(member for member in row.replicas if member in ids) for row in state.rows]
    hosts = {member.id: member.host for member in holding}
    rows = [_kept(row.target, serving, hosts) for row, serving in zip(state.rows, replicas, strict=True)]
    targets = placed(rows, replicas, hosts, state.backup_count)
    lost = {
        partition: row.replicas for partition, row in enumerate(state.rows) if row.replicas and not replicas[partition]
    }
    return msgspec.structs.replace(
        state,
        version=state.version + 1,
        members=members,
        largest=max(state.largest, len(members)),
        # A partition without replicas is emptied: all its targets become replicas at once.
        rows=tuple(
            _row(row, new or target, target) for row, new, target in zip(state.rows, replicas, targets, strict=True)
        ),
        lost={**state.lost, **lost},
        draining=draining,
        silent=tuple(member for member in state.silent if member in ids),
        voteless=tuple(member for member in state.voteless if member in ids),
    )


def _kept(target: tuple[str, ...], replicas: tuple[str, ...], hosts: Mapping[str, str]) -> tuple[str, ...]:
    # If the designated primary is gone before it was in sync, the one that serves stays primary.
    if replicas and target[0] not in hosts and replicas[0] in hosts:
        return (replicas[0], *(member for member in target if member != replicas[0]))
    return target


def _row(row: Row, replicas: tuple[str, ...], target: tuple[str, ...]) -> Row:
    if set(target) <= set(replicas):
        replicas = target
    same = (replicas, target) == (row.replicas, row.target)
    return row if same else Row(replicas, target, row.version + 1)


def wanted_voters(state: ClusterState, voting: Collection[str]) -> list[str]:
    """The ids of the members that should vote; those that vote already keep their vote.

    Never two, as the loss of one would stop both; a voteless member only if all are; five only where partitions survive
    two losses as well. Members on other hosts come first, then those that joined first.
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


def tolerated_losses(state: ClusterState, voting: Collection[str], there: Collection[str]) -> int:
    """How many more members may be lost at once, whichever they are, with the cluster going on and queries starting.

    Whether data would be lost is another matter: it depends on the backups, and on what is still being copied.
    """
    votes = len(set(voting) & set(there)) - (len(voting) // 2 + 1)
    size = sum(member.id in there for member in state.members) - (state.largest // 2 + 1)
    return max(min(votes, size), 0)
