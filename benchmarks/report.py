"""What a peer says: how long a stretch of its input took, and at its end what its results add up to; lines of JSON."""

from __future__ import annotations

import sys

import msgspec


class Totals(msgspec.Struct, array_like=True, frozen=True):
    """What the result rows of one window end add up to."""

    rows: int
    checksum: int
    real: float


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run that was measured.

    Args:
        rows: Its input rows.
        seconds: Its wall-clock time.
    """

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Input rows a second."""
        return self.rows / self.seconds


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a whole run by window end.

    Args:
        complete: Windows that end here (seconds of event time) or before have all their rows.
        ends: Totals by window end.
    """

    complete: int
    ends: dict[int, Totals]


def emit(said: Stretch | Results) -> None:
    """Print a line, for which :mod:`process` waits."""
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()
