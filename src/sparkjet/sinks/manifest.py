"""The manifest of a file sink: which files belong to which published epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.errors import StorageError
from sparkjet.known_types import known
from sparkjet.sinks.manifest_listing import EXPIRED, LEVELS, SEGMENT, SINGLE, Listing, Piece, blocks_at, same_block
from sparkjet.storage.posix_directory import as_directory

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

MANIFEST_DIRECTORY = "_sparkjet"
LARGEST = 32 * 2**20
"""The most bytes merged at once, as a commit waits for the merge."""
_NEVER = 10**9
"""An epoch that has no name of nine digits."""


class ManifestEntry(msgspec.Struct, frozen=True):
    """An epoch's published files, relative to the output directory.

    ``committed`` is the clock's time in microseconds, ``run`` the run that prepared them, and ``progress`` what readers
    are told, a :class:`~sparkjet.time.WriterProgress`: in a segment the watermark alone, and nothing by earlier
    versions. The expiry is an entry that stands for all expired epochs, up to its own; ``leaving`` are files that have
    expired with it and are to be removed.
    """

    epoch: int
    files: list[str]
    format: str
    schema: dict[str, Any]
    options: dict[str, str]
    committed: int | None = None
    run: str | None = None
    progress: dict[str, Any] | None = None
    leaving: list[str] = []


class _Shape(msgspec.Struct, frozen=True):
    """A line of a segment: what the entries after it have in common."""

    format: str
    schema: dict[str, Any]
    options: dict[str, str]


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A line of a segment: what is specific to one entry."""

    epoch: int
    committed: int | None
    files: list[str]
    run: str | None = None
    progress: dict[str, Any] | None = None


class Manifest:
    """Entries of one query's sink, each written once after all files of its epoch are in place.

    Blocks of 16 epochs are merged into segments, 16 of these into one, up to 65,536 epochs or 32 MiB: an entry is
    written at most five times, however many epochs there are. A segment is put before the files it replaces are
    removed, so a crash at any point loses no entry. An entry or segment that a paused driver puts late lies within an
    existing one and is not read: the manifest never goes back.

    Args:
        directory: The output directory.
        query: The query's id.
        sink: The sink's name.
        between: Called between two changes on disk; fault tests crash there.
    """

    def __init__(
        self, directory: Path | Directory, query: str, sink: str, between: Callable[[], None] = lambda: None
    ) -> None:
        self.query, self.sink = query, sink
        self._directory = as_directory(directory)
        self._folder = self._directory.below(f"{MANIFEST_DIRECTORY}/{query}/{sink}/manifest")
        self._between = between

    @staticmethod
    def all_of(directory: Path | Directory) -> list[Manifest]:
        """The manifests of all queries that have written into an output directory."""
        top = as_directory(directory).below(MANIFEST_DIRECTORY)
        sinks = [(query, sink) for query in sorted(top.names()) for sink in sorted(top.below(query).names())]
        return [Manifest(directory, *each) for each in sinks if top.exists("/".join((*each, "manifest")))]

    def contains(self, epoch: int) -> bool:
        """Whether the epoch has been published; reads file names only."""
        return Listing.settled(self._folder).contains(epoch)

    def newest(self) -> int | None:
        """The newest epoch that was published, expired or not; reads file names only."""
        return Listing.of(self._folder).newest

    def published(self, epoch: int, after: int) -> tuple[bool, ManifestEntry | None]:
        """Whether an epoch has been published, and its entry; or else the newest one, if that is of a later one."""
        # One pass is enough to see whether there is a later one: no merge removes the newest entry.
        first = Listing.of(self._folder)
        if first.newest is None or first.newest <= after:
            return first.contains(epoch), None
        while True:
            listing = Listing.settled(self._folder)
            there = listing.contains(epoch)
            if listing.newest is None or listing.newest <= after:
                return there, None
            sought = epoch if there else listing.newest
            # The last one: what has not expired is behind the expiry.
            piece = [piece for piece in listing.live if piece.first <= sought <= piece.last][-1]
            try:
                return there, max(self._read(piece), key=lambda entry: (entry.epoch == sought, entry.epoch))
            except FileNotFoundError:
                # A merge removed the piece between the listing and the read; what replaced it is there now.
                continue

    def last(self) -> ManifestEntry | None:
        """The entry of the newest epoch, with rows or without; None before the first."""
        return self.published(_NEVER, -1)[1]

    def add(self, entry: ManifestEntry, after: int | None = None) -> bool:
        """Publish an entry; a second call with the same epoch changes nothing, and is told so.

        Args:
            entry: The entry.
            after: The epoch of an entry that is known to be there: in the same block, nothing is to be merged.
        """
        self._folder.create()
        is_new = self._folder.put(f"{entry.epoch:09d}.{SINGLE}", msgspec.json.encode(entry))
        self._between()
        in_block = after is not None and same_block(after, entry.epoch)
        if not in_block and Listing.of(self._folder).begins_block(entry.epoch):
            self._merge(entry.epoch)
        return is_new

    @property
    def floor(self) -> int:
        """The newest epoch that has expired, -1 if none has; reads file names only."""
        return Listing.of(self._folder).floor

    def entries(self, after: int = -1) -> list[ManifestEntry]:
        """All live entries, oldest first; or those after an epoch, of which only what is newer is read."""
        read: dict[Piece, list[ManifestEntry]] = {}
        while True:
            listing = Listing.settled(self._folder)
            try:
                for piece in listing.live:
                    if piece.last > after and piece not in read:
                        read[piece] = self._read(piece)
            except FileNotFoundError:
                # A merge removed a piece between the listing and the read; what replaced it is there now.
                continue
            # A block may begin below the floor, with entries that have expired.
            found = [
                entry
                for piece in listing.live
                for entry in read.get(piece, ())
                if entry.epoch > after and (entry.epoch > listing.floor or not piece.of_entries)
            ]
            return sorted(found, key=lambda entry: entry.epoch)

    def expire(self, before: int, step: int, *, removes: bool = False, now: int | None = None) -> None:
        """Expire the oldest entries that were committed before a time, up to the first that was not.

        Files of entries without a known age stay listed, and expired epochs still count as published. Works in steps,
        as it reads what expires: nothing happens until an entry is older than ``before`` by ``step``.

        With ``removes`` the expiry names their files, and the next call removes them, whether or not more expires: a
        crash in between loses none of the names.

        A time after ``now`` is of a clock that was ahead: such an entry is as old as the next one with another time,
        and the others need not wait until it would be old.
        """
        latest = math.inf if now is None else now
        listing = Listing.settled(self._folder)
        known = None if listing.expired is None else self._read(listing.expired)[0]
        if known is not None and known.leaving:
            self._directory.remove_files(known.leaving)
            self._between()
        if known is not None and known.committed is not None and before - step < known.committed <= latest:
            return
        expiry = _Expiry(known, listing.floor, latest, removes=removes)
        for piece in listing.live:
            if piece.of_entries and not expiry.take(self._read(piece), before):
                break
        entry = expiry.entry()
        if entry is not None:
            self._folder.put(f"{entry.epoch:09d}.{EXPIRED}", msgspec.json.encode(entry))
            self._between()
            self._remove_obsolete()

    def remove_leftovers(self) -> None:
        """Remove temporary files left by crashes."""
        self._folder.sweep()

    def _merge(self, epoch: int) -> None:
        """Merge the complete blocks before an epoch: two of each level, as a crash may have prevented the last merge.

        Blocks that were missed nevertheless are merged at the next level.
        """
        for level in range(1, LEVELS + 1):
            for block in blocks_at(epoch, level, 2, 1):
                if len(Listing.of(self._folder).within(block)) > 1:
                    self._merge_block(block)
        self._remove_obsolete()

    def _merge_block(self, block: Piece) -> None:
        pieces = Listing.settled(self._folder).within(block)
        sizes = self._folder.files()
        if sum(sizes.get(piece.name, 0) for piece in pieces) > LARGEST:
            return
        try:
            merged = b"".join(self._lines(pieces))
        except FileNotFoundError:
            # Another driver has merged them.
            return
        self._folder.put(block.name, merged)
        self._between()

    def _lines(self, pieces: list[Piece]) -> Iterator[bytes]:
        last = None
        for piece in pieces:
            content = self._content(piece)
            if piece.kind == SEGMENT:
                # Copied as it is: decoding thousands of entries would delay a commit.
                last = None
                yield content
                continue
            entry = self._decoded(piece, content)[0]
            shape = _Shape(entry.format, entry.schema, entry.options)
            if shape != last:
                yield msgspec.json.encode(shape) + b"\n"
            last = shape
            # The offsets of thousands of epochs would be most of a segment: those of the last say what all have read.
            told = entry.progress
            if told and piece is not pieces[-1]:
                told = {"watermark": told["watermark"]}
            yield msgspec.json.encode(_Row(entry.epoch, entry.committed, entry.files, entry.run, told)) + b"\n"

    def _remove_obsolete(self) -> None:
        def names() -> Iterator[str]:
            for piece in sorted(Listing.of(self._folder).obsolete):
                yield piece.name
                self._between()

        self._folder.remove_files(names())

    def _read(self, piece: Piece) -> list[ManifestEntry]:
        return self._decoded(piece, self._content(piece))

    def _decoded(self, piece: Piece, content: bytes) -> list[ManifestEntry]:
        try:
            return _entries(content) if piece.kind == SEGMENT else [_ENTRY.decode(content)]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            message = (
                f"{self._folder.below(piece.name)} is damaged, which names the files of epochs {piece.first} to "
                f"{piece.last}: {error}. Restore it. Plain readers (spark.read) read the files without it."
            )
            raise StorageError(message) from error

    def _content(self, piece: Piece) -> bytes:
        return self._folder.read(piece.name)


class _Expiry:
    """Builds the expiry, from the oldest entry on."""

    def __init__(self, known: ManifestEntry | None, floor: int, latest: float, *, removes: bool) -> None:
        self._known, self._floor, self._latest, self._removes = known, floor, latest, removes
        self._last: ManifestEntry | None = None
        self._kept: list[str] = [] if known is None else list(known.files)
        self._ageless: list[str] = []
        self._ahead: list[str] = []
        self._leaving: list[str] = []
        self._oldest: ManifestEntry | None = None

    def take(self, entries: list[ManifestEntry], before: int) -> bool:
        """Take the next entries; False at the first that is too young to expire."""
        for entry in entries:
            if entry.epoch <= self._floor:
                continue
            if entry.committed is None:
                self._ageless += entry.files
            elif entry.committed > self._latest:
                self._ahead += entry.files
            elif entry.committed < before:
                self._last = entry
                self._kept += self._ageless
                self._leaving += [*self._ahead, *entry.files] if self._removes else ()
                self._ageless, self._ahead = [], []
            else:
                self._oldest = entry
                return False
        return True

    def entry(self) -> ManifestEntry | None:
        """The entry, with the time of the oldest entry that stays; None if nothing has changed."""
        shape = self._last or self._oldest
        if shape is None or (self._last is None and self._known is not None):
            return None
        return msgspec.structs.replace(
            shape,
            epoch=0 if self._last is None else self._last.epoch,
            files=self._kept,
            leaving=self._leaving,
            committed=None if self._oldest is None else self._oldest.committed,
        )


def _entries(segment: bytes) -> list[ManifestEntry]:
    entries, shape = [], None
    for line in segment.splitlines():
        if shape is None or line.startswith(b"{"):
            # A merge writes it first.
            shape = _SHAPE.decode(line)
        else:
            row = _ROW.decode(line)
            common = shape.format, shape.schema, shape.options
            entries.append(ManifestEntry(row.epoch, row.files, *common, row.committed, row.run, row.progress))
    if not entries:
        # None is merged without: it was cut off.
        raise msgspec.DecodeError("it has no entries")
    return entries


# Built at import, as in snapshots/record.py: building a decoder in several threads at once could crash the process.
_ENTRY = msgspec.json.Decoder(known(ManifestEntry))
_SHAPE = msgspec.json.Decoder(known(_Shape))
_ROW = msgspec.json.Decoder(known(_Row))
