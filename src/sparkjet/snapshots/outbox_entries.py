"""Outbox entries: the rows of decided epochs until they are delivered, and the marks of delivered entries."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

_MARK = "delivered-"
_ENTRY = re.compile(r"(\d+)-(\d+)-\d+(?:-[0-9a-f]+)?")
"""Names of entries: takeover, epoch, attempt, run."""


@dataclass(frozen=True)
class OutboxEntries:
    """The entries of one sink, each a directory of Parquet files named after its transaction.

    An entry is removed only once a mark records its delivery; the last mark stays. Marks are separate files, so that a
    driver that was paused in the middle of a delivery cannot undo its successor's marks.

    Args:
        directory: The sink's directory in the outbox.
    """

    directory: Directory

    def at(self, entry: str) -> Directory:
        """The directory of an entry."""
        return self.directory.below(entry)

    def mark(self, entry: str) -> str:
        """The file that records the delivery of an entry, for messages."""
        return str(self.directory.below(f"{_MARK}{entry}"))

    def seal(self, entry: str, files: Sequence[str]) -> list[list[Any]]:
        """Make an entry durable and return its manifest: name, size and CRC-32 of each file."""
        self.directory.sync(f"{entry}/{file}" for file in files)
        directory = self.at(entry)
        sizes = directory.files()
        return [[file, sizes[file], directory.checksum(file)] for file in files]

    def damage(self, handle: dict[str, Any]) -> str | None:
        """The first difference between an entry and its manifest, None if there is none."""
        entry = self.at(handle["box"])
        # An epoch that only reports the watermark stores nothing.
        if handle["files"] and not entry.exists():
            return f"{entry} is gone"
        sizes = entry.files()
        for name, size, checksum in handle["files"]:
            file = entry.below(name)
            if name not in sizes:
                return f"{file} is gone"
            if sizes[name] != size:
                return f"{file} has {sizes[name]} bytes instead of {size}"
            if entry.checksum(name) != checksum:
                return f"the content of {file} has changed"
        return None

    def delivered(self, entry: str) -> bool:
        """Whether an entry was delivered: its own mark exists, or that of a later epoch.

        A sink's epochs are delivered in order. Another entry of the same epoch proves nothing: with at-least-once, an
        epoch that was delivered may run again with other rows.
        """
        return any(each == entry or _epoch(each) > _epoch(entry) for each in self._marked())

    def note_delivered(self, entry: str) -> None:
        """Record durably that an entry was delivered, and remove older marks."""
        # The destination may have the rows although the whole outbox is gone.
        self.directory.create()
        self.directory.put(f"{_MARK}{entry}", b"")
        for each in self._marked():
            if _epoch(each) < _epoch(entry):
                self.directory.remove(f"{_MARK}{each}")

    def last(self) -> tuple[int, str] | None:
        """The last delivered epoch, and its mark; None before the first."""
        newest = max(self._marked(), key=_epoch, default=None)
        return None if newest is None else (_epoch(newest), self.mark(newest))

    def remove(self, entry: str) -> None:
        """Remove an entry; does nothing if it does not exist."""
        self.directory.remove(entry)

    def remove_orphans(self, takeover: int, decided: Collection[str]) -> None:
        """Remove the undecided entries of drivers before a takeover."""
        for name in self.directory.names():
            found = _ENTRY.fullmatch(name)
            if found is None or name in decided:
                continue
            if int(found[1]) < takeover:
                self.directory.remove(name)

    def _marked(self) -> list[str]:
        names = [name.removeprefix(_MARK) for name in self.directory.names() if name.startswith(_MARK)]
        return [name for name in names if _ENTRY.fullmatch(name)]


def files_of(handle: dict[str, Any]) -> list[str]:
    """Names of the files of an entry, as its manifest lists them."""
    return [name for name, _, _ in handle["files"]]


def _epoch(entry: str) -> int:
    found = _ENTRY.fullmatch(entry)
    assert found is not None  # noqa: S101 - entries are named by TransactionId
    return int(found[2])
