"""Rounds of faults from the command line: ``python -m tests.faults.main 17`` or ``--first 0 --rounds 200``."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.rounds import run
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer


def main() -> None:
    """Run the rounds; the end of the first that finds something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="seeds of the rounds of one trial")
    parser.add_argument("--first", type=int, default=0, help="without seeds: the first of many")
    parser.add_argument("--rounds", type=int, default=10, help="without seeds: how many")
    parser.add_argument("--trial", type=int, default=10, help="without seeds: rounds a trial")
    given = parser.parse_args()
    every = given.seeds or range(given.first, given.first + given.rounds)
    length = len(every) if given.seeds else given.trial
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkjet-faults-")))
        postgres, kafka = stack.enter_context(PostgresServer()), stack.enter_context(KafkaServer())
        columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
        progress = stack.enter_context(Progress(*columns))
        task = progress.add_task("rounds", total=len(every))

        def tell(what: str) -> None:
            progress.print(what)
            progress.advance(task)

        for number in range(0, len(every), length):
            home = root / f"trial-{number}"
            home.mkdir()
            run(home, postgres, kafka, every[number : number + length], tell)


if __name__ == "__main__":
    main()
