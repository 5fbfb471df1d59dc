"""A small disk that a test fills up or makes read-only."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

from typing_extensions import Self

from tests.faults.waiting import until

PAGE = 4096
MOUNTING = 20.0
"""Seconds that a remount may be refused because a file is open for writing."""


class NoDiskError(Exception):
    """This machine does not allow mounts."""


class Disk:
    """A file system in memory, mounted on its own directory until the ``with`` block ends."""

    def __init__(self, path: Path, megabytes: int = 48) -> None:
        self.path = path
        self._megabytes = megabytes
        self._filler = path / "filler"

    def __enter__(self) -> Self:
        self.path.mkdir()
        mounted = _mount("-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.path))
        if mounted.returncode != 0:
            message = f"cannot mount a small disk, which needs root and CAP_SYS_ADMIN: {mounted.stderr.strip()}"
            raise NoDiskError(message)
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a process that was just killed may still have files open.
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, capture_output=True)

    def fill(self, spare: int) -> None:
        """Leave room for ``spare`` pages."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(16 * PAGE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - spare * PAGE))

    def free(self) -> None:
        """Free the space."""
        self._filler.unlink(missing_ok=True)

    def make_read_only(self, patience: float = MOUNTING) -> None:
        """Reject every write from now on, as a file system does after a device error."""
        # The remount fails while a file is open for writing, which soon is not the case.
        until(lambda: _mount("-o", "remount,ro", str(self.path)).returncode == 0, "the disk to be remounted", patience)

    def make_writable(self) -> None:
        """Accept writes again."""
        _mount("-o", "remount,rw", str(self.path)).check_returncode()


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
