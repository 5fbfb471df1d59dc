"""A clock that a test sets forward and back from another process."""

from __future__ import annotations

from pathlib import Path

from sparkjet import SystemClock


class SteppedClock(SystemClock):
    """The wall clock, off by the number of microseconds in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> int:
        """Microseconds since the Unix epoch, by this clock."""
        return super().now() + int(self._file.read_text())


def set_off(file: Path, microseconds: int) -> None:
    """Set the clock that reads this file: it is off by this much from now on."""
    # Under another name first: a running query must never see an empty file.
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(str(microseconds))
    hidden.rename(file)
