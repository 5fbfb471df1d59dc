"""The cluster's state: its members and the replicas of each partition, as every member sees them."""

from __future__ import annotations

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
