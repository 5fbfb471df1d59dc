"""The partition table: which members should hold the replicas of each partition, moving as few as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_

PARTITIONS = 271
"""Default of the number of partitions, which the first member decides."""
MOST_PARTITIONS = 1000
"""All members know all rows: with six backups these fill half of a ZooKeeper node."""
MOST_BACKUPS = 6


def placed(
    rows: Sequence[Sequence[str]], held: Sequence[Collection[str]], hosts: Mapping[str, str], backup_count: int
) -> list[tuple[str, ...]]:
    """The members that should hold each partition, the primary first; a deterministic function.

    The numbers of replicas of two members differ by at most one, and so do those of primaries. No more replicas move
    than necessary: those of a lost member, and those that a new one gets. The replicas of a partition are on as many
    hosts as possible, without making members hold unequal numbers.

    >>> placed([()] * 4, [()] * 4, {"a": "x", "b": "y"}, 1)
    [('a', 'b'), ('b', 'a'), ('a', 'b'), ('b', 'a')]
    >>> placed([("a", "b"), ("b", "a")], [("b",)] * 2, {"b": "y", "c": "z"}, 1)
    [('c', 'b'), ('b', 'c')]
    """
    if not hosts:
        return [()] * len(rows)
    table = _Table(rows, held, hosts, min(backup_count, len(hosts) - 1) + 1)
    table.deal()
    table.level()
    table.separate()
    table.even_primaries()
    return [tuple(row) for row in table.rows]


class _Table:
    """Rows being changed; sets of partitions are bits of integers, as most operations are intersections."""

    def __init__(
        self, rows: Sequence[Sequence[str]], held: Sequence[Collection[str]], hosts: Mapping[str, str], copies: int
    ) -> None:
        self.rows: list[list[str]] = [[] for _ in rows]
        self._hosts, self._members, self._copies = hosts, list(hosts), copies
        self._on = dict.fromkeys(hosts, 0)
        self._primary = dict.fromkeys(hosts, 0)
        self._held = dict.fromkeys(hosts, 0)
        self._host = dict.fromkeys(hosts.values(), 0)
        self._floor, self._ceiling = _share(len(rows) * copies, len(hosts))
        for partition, row in enumerate(rows):
            for member in held[partition]:
                if member in hosts:
                    self._held[member] |= 1 << partition
            for member in row:
                if member in hosts:
                    self._add(partition, member)

    def deal(self) -> None:
        """Fill rows with primaries, and with the backups of each member's primaries in equal blocks on others."""
        for partition, row in enumerate(self.rows):
            if not row:
                self._add(partition, min(self._members, key=lambda member: self._first_choice(partition, member)))
        backups = {member: dict.fromkeys(self._members, 0) for member in self._members}
        for row in self.rows:
            for member in row[1:]:
                backups[row[0]][member] += 1
        others = max(len(self._members) - 1, 1)
        blocks = {
            member: -(-self._primary[member].bit_count() * (self._copies - 1) // others) for member in self._members
        }
        for partition, row in enumerate(self.rows):
            while len(row) < self._copies:
                of_primary, taken = backups[row[0]], self._taken(row)
                member = min(
                    (member for member in self._members if member not in row),
                    # Among equals the member that joined first.
                    key=lambda member: (
                        not self._held[member] >> partition & 1,
                        self._hosts[member] in taken,
                        self._on[member].bit_count() >= self._ceiling,
                        of_primary[member] >= blocks[row[0]],
                    ),
                )
                of_primary[member] += 1
                self._add(partition, member)

    def level(self) -> None:
        """Move replicas from members with too many to those with too few, preferring ones that are copied anyway.

        Direct moves always suffice; a path over other members is taken if it saves a copy.
        """
        for donor in self._members:
            while self._on[donor].bit_count() > self._ceiling:
                room = [member for member in self._members if self._on[member].bit_count() < self._ceiling]
                self._hand_over(self._cheapest([donor], room))
        for needy in self._members:
            while self._on[needy].bit_count() < self._floor:
                rich = [member for member in self._members if self._on[member].bit_count() > self._floor]
                self._hand_over(self._cheapest(rich, [needy]))

    def separate(self) -> None:
        """Swap replicas of partitions that have several on one host with others, if hosts are left."""
        if len(self._host) > 1:
            for partition, row in enumerate(self.rows):
                while len(self._taken(row)) < min(len(row), len(self._host)) and self._spread(partition):
                    pass

    def even_primaries(self) -> None:
        """Balance primaries along shortest paths between members; swapping roles within a row copies nothing."""
        changed = True
        while changed:
            changed = False
            for member in sorted(self._members, key=lambda member: -self._primary[member].bit_count()):
                path = self._shortest(member)
                changed = changed or bool(path)
                for giver, taker in path:
                    both = self._primary[giver] & self._on[taker]
                    # Preferably where the backup has the data already.
                    self._swap(_lowest(both & self._held[taker] or both), giver, taker)

    def _first_choice(self, partition: int, member: str) -> tuple[bool, int]:
        return not self._held[member] >> partition & 1, self._primary[member].bit_count()

    def _taken(self, row: Sequence[str]) -> set[str]:
        return {self._hosts[member] for member in row}

    def _cheapest(self, sources: Sequence[str], goals: Sequence[str]) -> list[str]:
        """The path of members along which to move a replica with the fewest additional copies."""
        costs = dict.fromkeys(sources, 0)
        before: dict[str, str] = {}
        queue = deque(sources)
        while queue:
            giver = queue.popleft()
            for taker in self._members:
                free = self._on[giver] & ~self._on[taker]
                if free and taker != giver:
                    cost = costs[giver] + (not self._moving(free, giver, taker))
                    if cost < costs.get(taker, len(self._members)):
                        costs[taker], before[taker] = cost, giver
                        (queue.append if cost > costs[giver] else queue.appendleft)(taker)
        goal = min(
            (goal for goal in goals if goal in costs), key=lambda goal: (costs[goal], self._on[goal].bit_count())
        )
        path = [goal]
        while path[-1] in before:
            path.append(before[path[-1]])
        return path[::-1]

    def _moving(self, partitions: int, giver: str, taker: str) -> int:
        # A replica that the giver has yet to copy, or the taker still holds, moves without another copy.
        return partitions & (~self._held[giver] | self._held[taker])

    def _hand_over(self, path: Sequence[str]) -> None:
        for giver, taker in pairwise(path):
            free = self._on[giver] & ~self._on[taker]
            free = self._moving(free, giver, taker) or free
            if self._hosts[giver] != self._hosts[taker]:
                free = free & ~self._host[self._hosts[taker]] or free
            _, most = _share(len(self.rows), len(self._members))
            is_primary = self._primary[giver].bit_count() > most > self._primary[taker].bit_count()
            role = self._primary[giver] if is_primary else ~self._primary[giver]
            self._move(_lowest(free & role or free), giver, taker)

    def _spread(self, partition: int) -> bool:
        row = self.rows[partition]
        taken = self._taken(row)
        doubled = [
            giver for giver in reversed(row) if any(self._hosts[giver] == self._hosts[o] for o in row if o != giver)
        ]
        doubled.sort(key=lambda giver: self._held[giver] >> partition & 1)
        for giver in doubled:
            for taker in self._members:
                if self._hosts[taker] in taken:
                    continue
                if self._on[giver].bit_count() > self._on[taker].bit_count():
                    self._move(partition, giver, taker)
                    return True
                # Rows that remain on as many hosts: they get a new one, or keep another replica on the old one.
                alike = ~self._host[self._hosts[giver]] | self._beside(taker)
                back = self._on[taker] & ~self._on[giver] & alike
                if back:
                    self._move(_lowest(back & ~self._held[taker] or back), taker, giver)
                    self._move(partition, giver, taker)
                    return True
        return False

    def _beside(self, member: str) -> int:
        others = [other for other in self._members if self._hosts[other] == self._hosts[member] and other != member]
        return reduce(or_, (self._on[other] for other in others), 0)

    def _shortest(self, start: str) -> list[tuple[str, str]]:
        """Pairs of members that swap roles, from a member to the nearest one with at least two primaries less."""
        most = self._primary[start].bit_count() - 2
        before = {start: start}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            if self._primary[giver].bit_count() <= most:
                return list(_pairs(before, giver))[::-1]
            for taker in self._members:
                if taker not in before and self._primary[giver] & self._on[taker]:
                    before[taker] = giver
                    queue.append(taker)
        return []

    def _add(self, partition: int, member: str) -> None:
        bit = 1 << partition
        if not self.rows[partition]:
            self._primary[member] |= bit
        self.rows[partition].append(member)
        self._on[member] |= bit
        self._host[self._hosts[member]] |= bit

    def _move(self, partition: int, giver: str, taker: str) -> None:
        row, bit = self.rows[partition], 1 << partition
        row[row.index(giver)] = taker
        self._on[giver] ^= bit
        self._on[taker] |= bit
        if self._primary[giver] & bit:
            self._primary[giver] ^= bit
            self._primary[taker] |= bit
        self._host[self._hosts[taker]] |= bit
        if self._hosts[giver] not in self._taken(row):
            self._host[self._hosts[giver]] ^= bit

    def _swap(self, partition: int, giver: str, taker: str) -> None:
        row, bit = self.rows[partition], 1 << partition
        row[row.index(taker)], row[0] = giver, taker
        self._primary[giver] ^= bit
        self._primary[taker] |= bit


def _share(number: int, members: int) -> tuple[int, int]:
    return number // members, -(-number // members)


def _lowest(partitions: int) -> int:
    return (partitions & -partitions).bit_length() - 1


def _pairs(before: Mapping[str, str], end: str) -> Iterator[tuple[str, str]]:
    while before[end] != end:
        yield before[end], end
        end = before[end]
