"""The command line: ``sparkjet``, or ``python -m sparkjet``."""

from __future__ import annotations

import io
import os
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
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have letters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run(arguments)
        if sys.stdout is not None:
            # Not at Python's exit, which would print a traceback for a failure.
            sys.stdout.flush()
    except OSError as error:
        # Such as a full disk that the output goes to; a reader like head, which has seen enough, is told nothing.
        if not isinstance(error, BrokenPipeError):
            print(f"sparkjet: {error}", file=sys.stderr)
        _drop_output()
        return 1
    return status


def _drop_output() -> None:
    """Drop output that could not be written, as Python would try again at its exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
