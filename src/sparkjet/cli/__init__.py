"""The command line: ``sparkjet``, or ``python -m sparkjet``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    try:
        from sparkjet.cli.commands import run  # noqa: PLC0415 - a line, not a traceback, where typer is missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sparkjet"):
            raise
        print(f"sparkjet: the command line needs {error.name}: pip install typer", file=sys.stderr)
        return 1
    return run(arguments)
