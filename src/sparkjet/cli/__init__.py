"""The command line: ``python -m sparkjet``."""

from sparkjet.cli.main import main

__all__ = ["main"]
