"""The state after a power cut: the names and contents that were synced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class PowerCut:
    """Notes every fsync of this process: a directory's makes its present names durable, a file's its content."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._names: dict[Path, set[str]] = {top: _names_in(top)}
        self._contents: set[int] = set()

    def note(self, descriptor: int) -> None:
        """Take an fsync down."""
        self._contents.add(os.fstat(descriptor).st_ino)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self._names[path] = _names_in(path)

    def lost(self, below: Path | None = None) -> list[str]:
        """Everything there is now that a power cut could take away."""
        there = sorted((below or self._top).rglob("*"))
        return [
            path.relative_to(self._top).as_posix()
            for path in there
            if path.name not in self._names.get(path.parent, set())
            or (path.is_file() and path.stat().st_ino not in self._contents)
        ]

    def brought_back(self) -> list[str]:
        """Everything that was removed and that a power cut could bring back."""
        gone = (path / name for path, names in self._names.items() for name in names if not (path / name).exists())
        return sorted(path.relative_to(self._top).as_posix() for path in gone)


@contextmanager
def recorded(top: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PowerCut]:
    """Note what is synced below a directory."""
    cut, fsync = PowerCut(top), os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        cut.note(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", note)
        yield cut


def _names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
