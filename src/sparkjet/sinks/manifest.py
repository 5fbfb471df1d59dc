"""The manifest of a file sink: which files belong to which published epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sparkjet.sinks.manifest_listing import EXPIRED, LEVELS, SEGMENT, SINGLE, Listing, Piece, blocks_at
from sparkjet.storage.paths import make_directories, put_if_absent, remove_temporaries

MANIFEST_DIRECTORY = "_sparkjet"
LARGEST = 32 * 2**20
"""Bytes that are merged at most in one go: what a commit may have to wait for."""


class ManifestEntry(msgspec.Struct, frozen=True):
    """An epoch's published files, relative to the output directory.

    ``committed`` is the clock's time in microseconds; entries of earlier versions have none. What left the manifest by
    its age, and compactions of earlier versions, are entries that stand for all epochs up to their own.
    """

    epoch: int
    files: list[str]
    format: str
    schema: dict[str, Any]
    options: dict[str, str]
    committed: int | None = None


class _Shape(msgspec.Struct, frozen=True):
    """A line of a segment: what the entries below it have in common."""

    format: str
    schema: dict[str, Any]
    options: dict[str, str]


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A line of a segment: what an entry has of its own."""

    epoch: int
    committed: int | None
    files: list[str]


class Manifest:
    """Entries of one query's sink, each written once after all files of its epoch are in place.

    Blocks of 16 epochs are merged into segments, 16 of these into one, up to 65,536 epochs or 32 MiB: an entry is
    written five times at most, however many epochs there are. A segment is put before what it replaces is removed, so a
    crash at any point leaves every entry. An entry or segment that a long paused driver puts late lies within one that
    is there and is not read: the manifest never goes back.

    Args:
        directory: The output directory.
        query: The query's id.
        sink: The sink's name.
        between: Called between two changes on disk; fault tests crash there.
    """

    def __init__(self, directory: Path, query: str, sink: str, between: Callable[[], None] = lambda: None) -> None:
        self._folder = directory / MANIFEST_DIRECTORY / query / sink / "manifest"
        self._between = between

    @staticmethod
    def all_of(directory: Path) -> list[Manifest]:
        """The manifests of every query that wrote into an output directory."""
        folders = sorted((directory / MANIFEST_DIRECTORY).glob("*/*/manifest"))
        return [Manifest(directory, folder.parent.parent.name, folder.parent.name) for folder in folders]

    def contains(self, epoch: int) -> bool:
        """Whether the epoch has been published; reads file names only."""
        return Listing.settled(self._folder).contains(epoch)

    def newest(self) -> int | None:
        """The newest epoch that was published, whether or not it has left; reads file names only."""
        return Listing.of(self._folder).newest

    def add(self, entry: ManifestEntry) -> None:
        """Publish an entry; the same epoch again changes nothing."""
        make_directories(self._folder)
        put_if_absent(self._folder / f"{entry.epoch:09d}.{SINGLE}", msgspec.json.encode(entry))
        self._between()
        if Listing.of(self._folder).begins_block(entry.epoch):
            self._merge(entry.epoch)

    def entries(self) -> list[ManifestEntry]:
        """All entries that count, oldest first."""
        read: dict[Piece, list[ManifestEntry]] = {}
        while True:
            listing = Listing.settled(self._folder)
            try:
                for piece in listing.live:
                    if piece not in read:
                        read[piece] = self._read(piece)
            except FileNotFoundError:
                # A merge removed a piece between the listing and the read; what replaced it is there now.
                continue
            # A block may begin below the floor.
            found = [
                entry
                for piece in listing.live
                for entry in read[piece]
                if entry.epoch > listing.floor or not piece.of_entries
            ]
            return sorted(found, key=lambda entry: entry.epoch)

    def expire(self, before: int, step: int) -> None:
        """Let the oldest entries go that were committed before a time, up to the first that was not.

        Entries whose age nobody knows stay; the epochs still count as published. Reads what leaves, and that in steps:
        nothing happens until an entry is older than ``before`` by ``step``.
        """
        listing = Listing.settled(self._folder)
        known = None if listing.expired is None else self._read(listing.expired)[0]
        if known is not None and known.committed is not None and known.committed + step > before:
            return
        left = _Leaving(known, listing.floor)
        for piece in listing.live:
            if piece.of_entries and not left.take(self._read(piece), before):
                break
        marker = left.marker()
        if marker is not None:
            put_if_absent(self._folder / f"{marker.epoch:09d}.{EXPIRED}", msgspec.json.encode(marker))
            self._between()
            self._remove_superfluous()

    def remove_leftovers(self) -> None:
        """Remove what crashes have left half-written."""
        if self._folder.is_dir():
            remove_temporaries(self._folder)

    def _merge(self, epoch: int) -> None:
        """Merge the whole blocks before an epoch: two of each level, as a crash may have kept the last from its merge.

        What was missed even so is in the merge of the next level.
        """
        for level in range(1, LEVELS + 1):
            for block in blocks_at(epoch, level, 2, 1):
                if len(Listing.of(self._folder).within(block)) > 1:
                    self._merge_block(block)
        self._remove_superfluous()

    def _merge_block(self, block: Piece) -> None:
        pieces = Listing.settled(self._folder).within(block)
        try:
            if sum((self._folder / piece.name).stat().st_size for piece in pieces) > LARGEST:
                return
            merged = b"".join(self._lines(pieces))
        except FileNotFoundError:
            # Another driver has merged them.
            return
        put_if_absent(self._folder / block.name, merged)
        self._between()

    def _lines(self, pieces: list[Piece]) -> Iterator[bytes]:
        last = None
        for piece in pieces:
            content = self._content(piece)
            if piece.kind == SEGMENT:
                # As it is: to decode thousands of entries would keep a commit waiting.
                last = None
                yield content
                continue
            entry = _ENTRY.decode(content)
            shape = _Shape(entry.format, entry.schema, entry.options)
            if shape != last:
                yield msgspec.json.encode(shape) + b"\n"
            last = shape
            yield msgspec.json.encode(_Row(entry.epoch, entry.committed, entry.files)) + b"\n"

    def _remove_superfluous(self) -> None:
        for piece in sorted(Listing.of(self._folder).superfluous):
            (self._folder / piece.name).unlink(missing_ok=True)
            self._between()

    def _read(self, piece: Piece) -> list[ManifestEntry]:
        content = self._content(piece)
        return _entries(content) if piece.kind == SEGMENT else [_ENTRY.decode(content)]

    def _content(self, piece: Piece) -> bytes:
        return (self._folder / piece.name).read_bytes()


class _Leaving:
    """What the marker of the epochs that have left must say, gathered from the oldest entry on."""

    def __init__(self, known: ManifestEntry | None, floor: int) -> None:
        self._known, self._floor = known, floor
        self._last: ManifestEntry | None = None
        self._kept: list[str] = [] if known is None else list(known.files)
        self._ageless: list[str] = []
        self._oldest: ManifestEntry | None = None

    def take(self, entries: list[ManifestEntry], before: int) -> bool:
        """Take the next entries; False at the first that stays by its age."""
        for entry in entries:
            if entry.epoch <= self._floor:
                continue
            if entry.committed is None:
                self._ageless += entry.files
            elif entry.committed < before:
                self._last = entry
                self._kept += self._ageless
                self._ageless = []
            else:
                self._oldest = entry
                return False
        return True

    def marker(self) -> ManifestEntry | None:
        """The marker, with the time of the oldest entry that stays; None if nothing is new."""
        shape = self._last or self._oldest
        if shape is None or (self._last is None and self._known is not None):
            return None
        return msgspec.structs.replace(
            shape,
            epoch=0 if self._last is None else self._last.epoch,
            files=self._kept,
            committed=None if self._oldest is None else self._oldest.committed,
        )


def _entries(segment: bytes) -> list[ManifestEntry]:
    entries, shape = [], None
    for line in segment.splitlines():
        if line.startswith(b"{"):
            shape = _SHAPE.decode(line)
        else:
            assert shape is not None  # noqa: S101 - a merge writes it first
            row = _ROW.decode(line)
            entries.append(
                ManifestEntry(row.epoch, row.files, shape.format, shape.schema, shape.options, row.committed)
            )
    return entries


# When the module is imported, as in engine/record.py: built by several threads at once it could end the process.
_ENTRY = msgspec.json.Decoder(ManifestEntry)
_SHAPE = msgspec.json.Decoder(_Shape)
_ROW = msgspec.json.Decoder(_Row)
