"""File systems of a test's own: a directory under a second path, and disks that are small enough to be filled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bound(directory: Path, second: Path) -> Iterator[Path]:
    """A directory under a second path; nothing can be renamed from one to the other."""
    with _mounted(second, "--bind", str(directory)):
        yield second


@contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A disk of a few megabytes, with what file systems keep for themselves."""
    with _mounted(directory, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs"):
        for name in ("lost+found", ".snapshot"):
            (directory / name).mkdir()
        (directory / ".nfs0000000000000001").touch()
        yield SmallDisk(directory)


class SmallDisk:
    """A disk that is filled and emptied.

    Attributes:
        directory: Where it is mounted.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / ".ballast"

    def fill(self) -> None:
        """Leave no room for a byte, nor for a new file's name."""
        with self._ballast.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink()

    @property
    def full(self) -> bool:
        """Whether it was filled."""
        return self._ballast.exists()


@contextmanager
def _mounted(directory: Path, *how: str) -> Iterator[None]:
    directory.mkdir()
    subprocess.run(["mount", *how, str(directory)], check=True)
    try:
        yield
    finally:
        # Lazily: the session that the tests share may still hold a file open.
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
