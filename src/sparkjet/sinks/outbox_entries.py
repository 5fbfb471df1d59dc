"""Outbox entries: the rows of decided epochs until they are delivered, and the marks of those that were."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkjet.storage.paths import make_directories, put_if_absent, sync_directory, sync_file

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle

_MARK = "delivered-"
_ENTRY = re.compile(r"(?:done-)?(\d+)-(\d+)-\d+")
"""Names of entries: takeover, epoch, attempt. Earlier versions renamed an entry before removing it."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class OutboxEntries:
    """The entries of one sink, each a directory of Parquet files named after its transaction.

    An entry is removed only once a mark records its delivery; the last mark stays. Marks are separate files, so that a
    driver that was paused in the middle of a delivery cannot undo its successor's marks.

    Args:
        directory: The sink's directory in the outbox.
    """

    directory: Path

    def path(self, entry: str) -> Path:
        """The directory of an entry."""
        return self.directory / entry

    def mark(self, entry: str) -> Path:
        """The file that records the delivery of an entry."""
        return self.directory / f"{_MARK}{entry}"

    def seal(self, entry: str, files: Sequence[Path]) -> list[list[Any]]:
        """Make an entry durable and return its manifest: name, size and CRC-32 of each file."""
        path = self.path(entry)
        for file in files:
            sync_file(path / file)
        sync_directory(path)
        sync_directory(self.directory)
        return [[str(file), (path / file).stat().st_size, _checksum(path / file)] for file in files]

    def damage(self, handle: Handle) -> str | None:
        """The first difference between an entry and its manifest, None if there is none."""
        path = self.path(handle["box"])
        if not path.is_dir():
            return f"{path} is gone"
        for name, size, checksum in handle["files"]:
            file = path / name
            if not file.is_file():
                return f"{file} is gone"
            if file.stat().st_size != size:
                return f"{file} has {file.stat().st_size} bytes instead of {size}"
            if _checksum(file) != checksum:
                return f"the content of {file} has changed"
        return None

    def delivered(self, entry: str) -> bool:
        """Whether an entry was delivered: its own mark exists, or that of a later epoch.

        A sink's epochs are delivered in order. Another entry of the same epoch proves nothing: with at-least-once, an
        epoch that was delivered may run again with other rows.
        """
        return any(each == entry or _epoch(each) > _epoch(entry) for each in self._marked())

    def deliver(self, entry: str) -> None:
        """Record durably that an entry was delivered, and remove older marks."""
        # The destination may have the rows although the whole outbox is gone.
        make_directories(self.directory)
        put_if_absent(self.mark(entry), b"")
        for each in self._marked():
            if _epoch(each) < _epoch(entry):
                self.mark(each).unlink(missing_ok=True)

    def last(self) -> tuple[int, Path] | None:
        """The last epoch that was delivered, and its mark; None before the first."""
        newest = max(self._marked(), key=_epoch, default=None)
        return None if newest is None else (_epoch(newest), self.mark(newest))

    def remove(self, entry: str) -> None:
        """Remove an entry; does nothing if it does not exist."""
        shutil.rmtree(self.path(entry), ignore_errors=True)

    def remove_orphans(self, takeover: int, decided: Collection[str]) -> None:
        """Remove the undecided entries of drivers before a takeover."""
        for path in self.directory.iterdir():
            found = _ENTRY.fullmatch(path.name)
            if found is None or path.name in decided:
                continue
            if path.name.startswith("done-") or int(found[1]) < takeover:
                shutil.rmtree(path, ignore_errors=True)

    def _marked(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        names = [path.name.removeprefix(_MARK) for path in self.directory.glob(f"{_MARK}*")]
        return [name for name in names if _ENTRY.fullmatch(name)]


def files_of(entry: Path, handle: Handle) -> list[Path]:
    """The files of an entry, as its manifest lists them; handles of earlier versions have no manifest."""
    if "files" not in handle:
        return sorted(entry.glob("part-*"))
    return [entry / name for name, _, _ in handle["files"]]


def _epoch(entry: str) -> int:
    found = _ENTRY.fullmatch(entry)
    assert found is not None  # noqa: S101 - entries are named by TransactionId
    return int(found[2])


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
