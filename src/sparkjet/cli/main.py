"""The commands, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sparkjet.cli import doctor, grid, snapshots, supervising, transactions, watching
from sparkjet.errors import SparkjetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkjet")
    commands = parser.add_subparsers(dest="command", required=True)
    for each in (transactions, snapshots, supervising, watching, doctor, grid):
        each.add_to(commands)
    chosen = parser.parse_args(arguments)
    try:
        status: int = chosen.run(chosen)
    except SparkjetError as error:
        print(f"sparkjet: {error}", file=sys.stderr)
        return 1
    return status
