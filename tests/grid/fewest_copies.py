"""The fewest copies that a change of members can cost, found by another way than the product's: a minimum-cost flow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_FORCED = -1000
"""Cost of the replicas that each member must have: so low that none of them stays out."""


def fewest_copies(held: Sequence[Collection[str]], members: Sequence[str], copies: int) -> int:
    """How many replicas have to be copied so that each member holds equally many, give or take one."""
    total = len(held) * copies
    floor, ceiling = total // len(members), -(-total // len(members))
    edges: list[list[int]] = []  # from, to, capacity left, cost; each one's opposite is next to it

    def edge(start: int, end: int, capacity: int, cost: int) -> None:
        edges.extend(([start, end, capacity, cost], [end, start, 0, -cost]))

    first = 2 + len(held)
    for partition, holders in enumerate(held):
        edge(0, 2 + partition, copies, 0)
        for number, member in enumerate(members):
            edge(2 + partition, first + number, 1, int(member not in holders))
    for number in range(len(members)):
        edge(first + number, 1, floor, _FORCED)
        edge(first + number, 1, ceiling - floor, 0)
    return _cost(edges, first + len(members), total) - _FORCED * floor * len(members)


def _cost(edges: list[list[int]], nodes: int, total: int) -> int:
    cost = 0
    for _ in range(total):
        distance, through = [float("inf")] * nodes, [-1] * nodes
        distance[0] = 0
        changed = True
        while changed:
            changed = False
            for number, (start, end, left, price) in enumerate(edges):
                if left and distance[start] + price < distance[end]:
                    distance[end], through[end], changed = distance[start] + price, number, True
        cost += int(distance[1])
        node = 1
        while node:
            number = through[node]
            edges[number][2] -= 1
            edges[number ^ 1][2] += 1
            node = edges[number][0]
    return cost
