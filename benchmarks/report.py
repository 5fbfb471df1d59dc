"""A peer's reports, as lines of JSON: the time of a stretch of its input, and at last the totals of its results."""

from __future__ import annotations

import sys

import msgspec


class Totals(msgspec.Struct, array_like=True, frozen=True):
    """The totals of the result rows of one window end."""

    rows: int
    checksum: int
    real: float


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A measured part of a run.

    Args:
        rows: Number of input rows.
        seconds: Wall-clock time.
    """

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Input rows per second."""
        return self.rows / self.seconds


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a whole run by window end.

    Args:
        complete: Windows that end here (seconds of event time) or earlier are complete.
        ends: Totals by window end.
    """

    complete: int
    ends: dict[int, Totals]


def emit(said: Stretch | Results) -> None:
    """Print a line, for which :mod:`process` waits."""
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()
