"""Rounds: trials of some rounds each, one seed a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.plan import Plan
from tests.faults.trial import Trial

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer


def run(
    root: Path, postgres: PostgresServer, kafka: KafkaServer, seeds: Sequence[int], tell: Callable[[str], None]
) -> None:
    """One trial with a round for each seed; the first also decides on feed and query.

    Args:
        root: A directory of its own.
        postgres: Where the tables are.
        kafka: Where the topics are.
        seeds: Of the rounds.
        tell: Called with what happened in each.

    Raises:
        AssertionError: Naming the seed, and how to repeat it.
    """
    trial = Trial(root, postgres, kafka, seeds[0])
    with trial:
        trial.start()
        for seed in seeds:
            plan = Plan.of(seed)
            try:
                tell(trial.round(plan))
            except AssertionError as error:
                raise AssertionError(f"{plan}; {trial.query.job}; {_again([seed])}: {error}") from error
        try:
            trial.finish()
        except AssertionError as error:
            raise AssertionError(f"after seeds {list(seeds)}; {trial.query.job}; {_again(seeds)}: {error}") from error


def _again(seeds: Sequence[int]) -> str:
    """The command that repeats some rounds; alone, a round begins with a new query."""
    return f"again: python -m tests.faults.main {' '.join(map(str, seeds))}"
