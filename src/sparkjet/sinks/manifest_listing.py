"""The file names of a manifest: which of them are live, and which are to be merged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

FANOUT = 16
"""Blocks of one level per block of the next; names on disk depend on it, so it must never change."""
LEVELS = 4
"""A segment of the highest level covers 65,536 epochs, which is 18 hours of one-second epochs, and is not merged."""

SINGLE, SEGMENT, EXPIRED = "json", "segment", "expired"
_NAME = re.compile(rf"(\d+)(?:-(\d+))?\.({SINGLE}|{SEGMENT}|{EXPIRED})")


class Piece(NamedTuple):
    """A file of a manifest, as described by its name.

    ``json`` is one epoch, ``segment`` every epoch of a block. Blocks are aligned (epochs 16 to 31, 256 to 511),
    whichever epochs had rows: so those of any two drivers are nested or disjoint, and two drivers that merge the same
    block agree on its name. ``expired`` says that every epoch up to its own was published and has expired.
    """

    first: int
    last: int
    kind: str

    @staticmethod
    @lru_cache(4096)
    def of(name: str) -> Piece | None:
        """The piece with a file name, None if the file is not part of a manifest."""
        match = _NAME.fullmatch(name)
        if match is None or (match[2] is not None) != (match[3] == SEGMENT):
            return None
        last = int(match[2] or match[1])
        return Piece(0 if match[3] == EXPIRED else int(match[1]), last, match[3])

    @property
    def name(self) -> str:
        """The file name."""
        if self.kind == SEGMENT:
            return f"{self.first:09d}-{self.last:09d}.{self.kind}"
        return f"{self.last:09d}.{self.kind}"

    @property
    def of_entries(self) -> bool:
        """Whether it can be merged."""
        return self.kind in {SINGLE, SEGMENT}

    def holds(self, other: Piece) -> bool:
        """Whether it makes another piece obsolete."""
        return self != other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class Listing:
    """The pieces of a manifest, as listed at one time."""

    pieces: frozenset[Piece]

    @staticmethod
    def of(folder: Directory) -> Listing:
        """List a folder, which may be missing; other files are ignored."""
        found = map(Piece.of, folder.names())
        return Listing(frozenset(piece for piece in found if piece is not None))

    @staticmethod
    def settled(folder: Directory) -> Listing:
        """List a folder in which others may be merging.

        A single pass over a directory may miss both a segment that is put in the meantime and the pieces it replaces,
        which are removed after that. The next pass finds the segment, so two passes that agree have missed nothing.
        """
        before = Listing.of(folder)
        while (after := Listing.of(folder)) != before:
            before = after
        return after

    @cached_property
    def expired(self) -> Piece | None:
        """The expiry, if there is one."""
        return self._newest(EXPIRED)

    @property
    def floor(self) -> int:
        """The newest epoch that has expired; -1 if there is none."""
        return -1 if self.expired is None else self.expired.last

    @cached_property
    def live(self) -> list[Piece]:
        """The pieces to read: the expiry, then those above the floor in the order of their epochs."""
        top = [] if self.expired is None else [self.expired]
        covered = self.floor
        entries = []
        # The longest first among those with the same beginning: pieces that end within it are part of it.
        for piece in sorted(filter(_of_entries, self.pieces), key=lambda each: (each.first, -each.last)):
            if piece.last > covered:
                entries.append(piece)
                covered = piece.last
        return top + entries

    @property
    def obsolete(self) -> frozenset[Piece]:
        """The pieces that were merged, replaced by a newer one of their kind, or have expired."""
        return self.pieces - frozenset(self.live)

    @property
    def newest(self) -> int | None:
        """The newest epoch; None for an empty manifest.

        The newest entry is never in a segment: a block is merged only once an entry beyond it exists.
        """
        return max((piece.last for piece in self.pieces if piece.kind != SEGMENT), default=None)

    def contains(self, epoch: int) -> bool:
        """Whether an epoch with rows has been published; true for every epoch below the floor."""
        return epoch <= self.floor or any(piece.first <= epoch <= piece.last for piece in self.live)

    def within(self, block: Piece) -> list[Piece]:
        """The pieces that a merge of a block would combine."""
        return [piece for piece in self.live if piece.of_entries and block.holds(piece)]

    def begins_block(self, epoch: int) -> bool:
        """Whether an epoch's entry is the first of its smallest block, so that the blocks before it are complete."""
        (block,) = blocks_at(epoch, 1, 0)
        return len(self.within(block)) <= 1

    def _newest(self, kind: str) -> Piece | None:
        return max((piece for piece in self.pieces if piece.kind == kind), default=None)


def _of_entries(piece: Piece) -> bool:
    return piece.of_entries


def same_block(epoch: int, other: int) -> bool:
    """Whether two epochs are in the same smallest block."""
    return epoch // FANOUT == other // FANOUT


def blocks_at(epoch: int, level: int, *back: int) -> Iterable[Piece]:
    """The blocks of a level that lie the given numbers of blocks before that of an epoch."""
    size = FANOUT**level
    starts = (epoch // size * size - each * size for each in back)
    return [Piece(start, start + size - 1, SEGMENT) for start in starts if start >= 0]
