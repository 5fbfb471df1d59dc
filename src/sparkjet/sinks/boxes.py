"""Boxes: the rows of epochs that wait for their delivery, and the marks of those that have been delivered."""

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
_BOX = re.compile(r"(?:done-)?(\d+)-(\d+)-\d+")
"""Names of boxes: takeover, epoch, attempt. Earlier versions renamed a box before they removed it."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Boxes:
    """The boxes of one sink, each a directory of Parquet files named like its transaction.

    A box is removed only when a mark says that it has been delivered; the last mark stays. Marks are files of their
    own, so that a driver that slept in the middle of a delivery cannot take back what its successor has marked.

    Args:
        directory: The sink's part of the outbox.
    """

    directory: Path

    def path(self, box: str) -> Path:
        """Where a box is."""
        return self.directory / box

    def mark(self, box: str) -> Path:
        """The file that says that a box has been delivered."""
        return self.directory / f"{_MARK}{box}"

    def seal(self, box: str, files: Sequence[Path]) -> list[list[Any]]:
        """Make a box durable; the answer is its manifest, the name, size and CRC-32 of each file."""
        path = self.path(box)
        for file in files:
            sync_file(path / file)
        sync_directory(path)
        sync_directory(self.directory)
        return [[str(file), (path / file).stat().st_size, _checksum(path / file)] for file in files]

    def damage(self, handle: Handle) -> str | None:
        """What differs between a box and its manifest, None if nothing does."""
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

    def delivered(self, box: str) -> bool:
        """Whether a box was delivered: its mark is there, or that of an epoch after it.

        Epochs of a sink are delivered in their order. Another box of the same epoch says nothing: with at-least-once
        an epoch that was delivered may be run again, with other rows.
        """
        return any(each == box or _epoch(each) > _epoch(box) for each in self._marked())

    def deliver(self, box: str) -> None:
        """Note durably that a box was delivered; older marks are not needed any more."""
        # A destination may know of rows whose outbox is gone altogether.
        make_directories(self.directory)
        put_if_absent(self.mark(box), b"")
        for each in self._marked():
            if _epoch(each) < _epoch(box):
                self.mark(each).unlink(missing_ok=True)

    def last(self) -> tuple[int, Path] | None:
        """The last epoch that was delivered, and its mark."""
        newest = max(self._marked(), key=_epoch, default=None)
        return None if newest is None else (_epoch(newest), self.mark(newest))

    def remove(self, box: str) -> None:
        """Remove a box; one that does not exist is ignored."""
        shutil.rmtree(self.path(box), ignore_errors=True)

    def remove_strays(self, takeover: int, decided: Collection[str]) -> None:
        """Remove the boxes of drivers before a takeover that nobody has decided."""
        for path in self.directory.iterdir():
            found = _BOX.fullmatch(path.name)
            if found is None or path.name in decided:
                continue
            if path.name.startswith("done-") or int(found[1]) < takeover:
                shutil.rmtree(path, ignore_errors=True)

    def _marked(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        names = [path.name.removeprefix(_MARK) for path in self.directory.glob(f"{_MARK}*")]
        return [name for name in names if _BOX.fullmatch(name)]


def files_of(box: Path, handle: Handle) -> list[Path]:
    """The files of a box as its manifest names them; handles of earlier versions have none."""
    if "files" not in handle:
        return sorted(box.glob("part-*"))
    return [box / name for name, _, _ in handle["files"]]


def _epoch(box: str) -> int:
    found = _BOX.fullmatch(box)
    assert found is not None  # noqa: S101 - boxes are named by TransactionId
    return int(found[2])


def _checksum(file: Path) -> int:
    checksum = 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
