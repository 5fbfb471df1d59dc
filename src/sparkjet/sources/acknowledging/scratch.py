"""The directory of a process: if the process is killed, the next one removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "sparkjet-queues-"
_LOCK, _NEW_LOCK = "lock", "lock.new"


class Scratch:
    """A new directory, private to the user, below Python's ``tempfile.gettempdir()``.

    Directories of killed processes are removed first: each may be as large as a spool, and a query that is killed again
    and again would fill the disk.

    Attributes:
        path: The directory.
    """

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            # Of another user, or just removed by another process.
            with contextlib.suppress(OSError):
                _remove_if_left(left)
        self._directory = tempfile.TemporaryDirectory(prefix=_PREFIX)
        self.path = Path(self._directory.name)
        # Held by this process alone, as long as it lives; taken before the name, or another one would take it first.
        self._lock = os.open(self.path / _NEW_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / _NEW_LOCK).rename(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it with everything in it; a second call does nothing."""
        if self._lock >= 0:
            self._directory.cleanup()
            os.close(self._lock)
            self._lock = -1


def _remove_if_left(directory: Path) -> None:
    lock = os.open(directory / _LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(lock)
