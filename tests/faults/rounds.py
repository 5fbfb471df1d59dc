"""Rounds: trials of several rounds each, with one seed per round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.plan import Plan
from tests.faults.trial import Trial

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer


def run(
    root: Path,
    postgres: PostgresServer,
    kafka: KafkaServer,
    seeds: Sequence[int],
    tell: Callable[[str], None],
) -> None:
    """One trial with a round for each seed; the first also decides on feed and query.

    Args:
        root: A directory for the trial.
        postgres: The server of the table.
        kafka: The broker of the topic.
        seeds: The seeds of the rounds.
        tell: Called with a report of each round.

    Raises:
        AssertionError: Naming the seed, and how to repeat it.
    """
    with Trial(root, postgres, kafka, seeds[0]) as trial:
        trial.start()
        for seed in seeds:
            plan = Plan.of(seed)
            with _explained(trial, str(plan), [seed]):
                tell(trial.round(plan))
        with _explained(trial, f"after seeds {list(seeds)}", seeds):
            trial.finish()


@contextmanager
def shown(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar that grows by a round with each call."""
    with Progress(TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        task = progress.add_task("rounds", total=total)

        def tell(what: str) -> None:
            progress.console.print(what, soft_wrap=True, markup=False, highlight=False)
            progress.advance(task)

        yield tell


@contextmanager
def _explained(trial: Trial, what: str, seeds: Sequence[int]) -> Iterator[None]:
    """Report the failure and how to repeat it (alone, a round begins with a new query); keep the disk's content."""
    try:
        yield
    except AssertionError as error:
        kept = trial.disk.path.with_name("kept")
        shutil.copytree(trial.place.root, kept)
        again = f"python -m tests.faults.main {' '.join(map(str, seeds))}"
        message = f"{what}; {trial.query.job}; again: {again}; what it left: {kept}; errors: {trial.errors}: {error}"
        raise AssertionError(message) from error
