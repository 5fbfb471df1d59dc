"""Command line of the conformance runner: ``python -m tests.conformance FILE…``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import read_cases
from tests.conformance.runner import run_cases
from tests.conformance.spark import SparkWindowDrivers
from tests.conformance.verdicts import Outcome, Verdict, summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases of the named files, print a line for each and a summary at the end.

    Returns:
        The exit status: 0 if no case has failed, otherwise 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Run the worked cases in Markdown files against sparkjet.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path)
    files: list[Path] = parser.parse_args(arguments).files
    verdicts = []
    with SparkWindowDrivers() as drivers:
        for file in files:
            try:
                cases = read_cases(file.read_text(encoding="utf-8", errors="replace"))
            except OSError as error:
                verdicts.append(_say(Verdict(str(file), Outcome.FAILED, f"cannot be read: {error.strerror}")))
                continue
            verdicts += [_say(verdict) for verdict in run_cases(cases, drivers)]
    sys.stdout.write(summary(verdicts) + "\n")
    return int(any(verdict.outcome is Outcome.FAILED for verdict in verdicts))


def _say(verdict: Verdict) -> Verdict:
    sys.stdout.write(f"{verdict}\n")
    # A run with Spark takes a minute: each verdict is printed at once.
    sys.stdout.flush()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
