"""What a peer says of one run: a line of JSON."""

from __future__ import annotations

import sys

import msgspec


class Totals(msgspec.Struct, array_like=True, frozen=True):
    """What the result rows of one window end add up to."""

    rows: int
    checksum: int
    real: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The measured part of a run, and the results of the whole run by window end.

    Args:
        rows: Input rows of the measured part.
        seconds: Its wall-clock time.
        complete: Windows that end here (seconds of event time) or before have all their rows.
        ends: Totals by window end.
    """

    rows: int
    seconds: float
    complete: int
    ends: dict[int, Totals]

    @property
    def rate(self) -> float:
        """Input rows a second."""
        return self.rows / self.seconds


def emit(report: Report) -> None:
    """Print a report as the last line of standard output, where :mod:`run` looks for it."""
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()
