"""Seeds for CI: few and cheap cases that together show everything; ``python -m tests.differential.choosing``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.differential.cases import Case
from tests.differential.coverage import OPERATORS
from tests.differential.queries import random_case
from tests.differential.values import TYPES

MANY = 10
"""Epochs after which what is stored has been merged."""
MERGED = f"{MANY} epochs"
WANTED = frozenset([*(each.ddl for each in TYPES), *OPERATORS, MERGED])
SEEDS, TRIES, MOST = 16_000, 60, 400
"""How many seeds there are to choose from, how often that is tried, and how many are compared at most."""
LONGEST = 12
"""Steps that Spark plans: one seed took as long as twenty."""


def planned(case: Case) -> int:
    """How many steps Spark plans for it: each step anew in each epoch, and in each that is run again."""
    steps = max(1, sum(map(len, case.branches)))
    return steps * (len(case.epochs) + sum(bool(epoch.then) for epoch in case.epochs))


def shown(case: Case) -> frozenset[str]:
    """What of :data:`WANTED` it shows: an operator in several epochs, unless it is that there is only one."""
    once = len(case.epochs) == 1 or case.through == "batch"
    operators = {name for name in case.operators() if not once or name == "in one batch"}
    merged = {MERGED} if len(case.epochs) >= MANY and not once else set()
    return WANTED & (operators | set(case.types()) | merged)


def cost(case: Case) -> float:
    """About how many seconds it takes on two cores: more where windows are joined, rows are tried, a member starts."""
    seen = shown(case)
    joins = sum(name.startswith("window join") for name in seen)
    tries = any(name.startswith("dead letters") for name in seen)
    return 2.3 + 1.2 * planned(case) + 1.5 * joins + 4 * tries + 1.5 * ("home grid" in seen)


@dataclass(frozen=True)
class Choice:
    """Of some cases, by seed: what each shows and costs, and how much it is worth to show something."""

    shows: Mapping[int, frozenset[str]]
    costs: Mapping[int, float]
    worth: Mapping[str, float]

    @classmethod
    def of(cls, cases: Mapping[int, Case]) -> Choice:
        """What few cases show is worth most."""
        shows = {seed: shown(case) for seed, case in cases.items()}
        times = Counter(name for names in shows.values() for name in names)
        if never := WANTED - times.keys():
            message = f"no seed shows {sorted(never)}"
            raise LookupError(message)
        costs = {seed: cost(case) for seed, case in cases.items()}
        return cls(shows, costs, {name: times[name] ** -0.3 for name in WANTED})

    def some(self, dice: Random) -> list[int]:
        """Seeds that together show everything, without those that the others make needless."""
        power, found, missing = dice.uniform(0.5, 1.2), [], set(WANTED)
        while missing:
            # First what few show, as other things come with it.
            rare = max(sorted(missing), key=lambda name: self.worth[name] * dice.uniform(0.7, 1))
            able = [seed for seed, names in self.shows.items() if rare in names]
            gains = {seed: self._gain(seed, missing, power) for seed in dice.sample(able, min(MOST, len(able)))}
            found.append(max(gains, key=gains.__getitem__))
            missing -= self.shows[found[-1]]
        for seed in sorted(found, key=self.costs.__getitem__, reverse=True):
            others = [self.shows[each] for each in found if each != seed]
            if frozenset().union(*others) >= WANTED:
                found.remove(seed)
        return found

    def _gain(self, seed: int, missing: set[str], power: float) -> float:
        return sum(self.worth[name] for name in self.shows[seed] & missing) / self.costs[seed] ** power


def main() -> None:
    """Prints the cheapest of many choices at random."""
    every = {seed: random_case(seed) for seed in range(SEEDS)}
    choice = Choice.of({seed: case for seed, case in every.items() if planned(case) <= LONGEST})
    dice = Random(1)
    best = min((choice.some(dice) for _ in range(TRIES)), key=lambda seeds: sum(map(choice.costs.__getitem__, seeds)))
    sys.stdout.write(f"{', '.join(map(str, best))}\n")


if __name__ == "__main__":
    main()
