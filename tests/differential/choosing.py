"""Seeds for CI: few and cheap cases that together show everything; ``python -m tests.differential.choosing``."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tests.differential.cases import Case
from tests.differential.coverage import OPERATORS
from tests.differential.queries import random_case
from tests.differential.values import TYPES

MANY = 10
"""Epochs after which what is stored has been merged."""
MERGED = f"{MANY} epochs"
HELD = ("tumbling", "sliding", "session", "rolling", "dropDuplicates by time", "join full", "transformWithState")
"""Operators that go on from a snapshot, one of each kind of state."""
RESTORED = frozenset(f"{name}, restored before rows" for name in HELD)
WANTED = frozenset([*(each.ddl for each in TYPES), *OPERATORS, MERGED, *RESTORED])
ROWS = 10
"""Rows that a case must have to show anything."""
SEEDS = 12000


def planned(case: Case) -> int:
    """How many steps Spark plans for it: each step in each epoch, and once more in each that is run again."""
    steps = max(1, sum(map(len, case.branches)))
    return steps * (len(case.epochs) + sum(bool(epoch.then) for epoch in case.epochs))


def shown(case: Case) -> frozenset[str]:
    """The part of :data:`WANTED` that it shows; operators only over several epochs, but for that of a single epoch."""
    if len(case.events()) < ROWS:
        return frozenset()
    once = len(case.epochs) == 1 or case.through == "batch"
    operators = {name for name in case.operators() if not once or name == "in one batch"}
    merged = {MERGED} if len(case.epochs) >= MANY and not once else set()
    goes_on = case.through == "driver" and any(epoch.then for epoch in case.epochs[:-1])
    restored = {f"{name}, restored before rows" for name in operators} if goes_on else set()
    return WANTED & (operators | set(case.types()) | merged | restored)


def chosen(cases: Mapping[int, Case], power: float) -> list[int]:
    """Seeds by how much they show for what they cost, without those that the others make needless."""
    costs = {seed: 8 + 2 * planned(case) + 7 * (case.through == "stream") for seed, case in cases.items()}
    shows = {seed: shown(case) for seed, case in cases.items()}
    found: list[int] = []
    missing = WANTED
    while missing:
        best = max(cases, key=lambda seed: len(shows[seed] & missing) / costs[seed] ** power)
        if not shows[best] & missing:
            message = f"no seed shows {sorted(missing)}"
            raise LookupError(message)
        found.append(best)
        missing -= shows[best]
    for seed in sorted(found, key=lambda each: -costs[each]):
        others = [shows[each] for each in found if each != seed]
        if frozenset().union(*others) >= WANTED:
            found.remove(seed)
    return found


def main() -> None:
    """Prints the cheapest of some choices."""
    cases = {seed: random_case(seed) for seed in range(SEEDS)}
    choices = [chosen(cases, power / 10) for power in range(6, 14)]
    best = min(choices, key=lambda seeds: sum(10 + 2 * planned(cases[seed]) for seed in seeds))
    sys.stdout.write(f"{', '.join(map(str, best))}\n")


if __name__ == "__main__":
    main()
