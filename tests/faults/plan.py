"""The plan of a round: everything random about it, derived from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sparkjet import EpochPhase
from tests.faults.kinds import Fault, every_kind

MOST_FILES = 3
LONGEST_DELAY = 3.0
LONGEST_HOLD = 6.0


@dataclass(frozen=True)
class Plan:
    """The events of a round, and their times.

    Attributes:
        seed: The seed of everything else.
        files: How many files, and so epochs, the query gets.
        faults: The faults, in order.
        step: The phase of an epoch at which they are injected; None for any time.
        epochs: The round's epochs in which they are injected.
        delay: Seconds from the files to the faults without a phase.
        hold: Seconds until they are healed, unless the query has ended or done its work before.
        impatient: Whether a query that has ended is restarted before they are healed.
    """

    seed: int
    files: int
    faults: tuple[Fault, ...]
    step: EpochPhase | None
    epochs: int
    delay: float
    hold: float
    impatient: bool

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The plan of a seed."""
        chance = random.Random(seed)
        kinds = every_kind(chance)
        first, second = chance.sample(kinds, 2)
        # Sometimes two at once; never two that heal each other.
        both = chance.random() < 0.4 and first.family != second.family
        files = chance.randint(1, MOST_FILES)
        return cls(
            seed=seed,
            files=files,
            faults=(first, second) if both else (first,),
            # Four times out of five: a moment between two phases is rarely met by chance.
            step=chance.choice(list(EpochPhase)) if chance.random() < 0.8 else None,
            epochs=chance.randint(1, files),
            delay=chance.uniform(0, LONGEST_DELAY),
            hold=chance.uniform(0, LONGEST_HOLD),
            impatient=chance.random() < 0.5,
        )

    def __str__(self) -> str:
        what = " + ".join(fault.name for fault in self.faults)
        when = f"after {self.delay:.1f} s" if self.step is None else f"at {self.step.name}"
        again = ", started again meanwhile" if self.impatient else ""
        return f"seed {self.seed}: {what}, {when} in {self.epochs} of {self.files}, for {self.hold:.1f} s{again}"
