"""Rounds of faults from the command line: ``python -m tests.faults.main 17 18`` or ``--first 0 --rounds 200``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.faults.rounds import run, shown
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer


def main() -> None:
    """Run rounds until one fails; then its directory is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="seeds of the rounds of one trial")
    parser.add_argument("--first", type=int, default=0, help="without seeds: the first of many")
    parser.add_argument("--rounds", type=int, default=10, help="without seeds: how many")
    parser.add_argument("--trial", type=int, default=10, help="without seeds: how many of them are one trial")
    given = parser.parse_args()
    every = given.seeds or range(given.first, given.first + given.rounds)
    length = len(every) if given.seeds else given.trial
    # The default handler would leave servers, drivers and mounts behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with ExitStack() as stack:
        postgres, kafka = stack.enter_context(PostgresServer()), stack.enter_context(KafkaServer())
        tell = stack.enter_context(shown(len(every)))
        for number in range(0, len(every), length):
            root = Path(tempfile.mkdtemp(prefix="sparkjet-faults-"))
            run(root, postgres, kafka, every[number : number + length], tell)
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
