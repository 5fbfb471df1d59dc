"""The file names of a manifest: which of them count, and which are to be merged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

FANOUT = 16
"""How many blocks of one level make one of the next; names on disk depend on it, so it must never change."""
LEVELS = 4
"""A segment of the highest level covers 65,536 epochs, which is 18 hours of one-second epochs, and is not merged."""

SINGLE, SEGMENT, COMPACT, EXPIRED = "json", "segment", "compact", "expired"
_NAME = re.compile(rf"(\d+)(?:-(\d+))?\.({SINGLE}|{SEGMENT}|{COMPACT}|{EXPIRED})")


class Piece(NamedTuple):
    """A file of a manifest, by what its name says.

    ``json`` is one epoch, ``segment`` every epoch of a block. Blocks are aligned (epochs 16 to 31, 256 to 511),
    whatever epochs had rows: so those of any two drivers are nested or disjoint, and two that merge the same block
    agree on its name. ``compact`` (of earlier versions) holds every epoch up to its own, whose age nobody knows.
    ``expired`` says that every epoch up to its own was published, and has left the manifest by its age.
    """

    first: int
    last: int
    kind: str

    @staticmethod
    @lru_cache(4096)
    def of(name: str) -> Piece | None:
        """The piece of a name, None if the file is none of a manifest's."""
        match = _NAME.fullmatch(name)
        if match is None or (match[2] is not None) != (match[3] == SEGMENT):
            return None
        last = int(match[2] or match[1])
        return Piece(0 if match[3] in {COMPACT, EXPIRED} else int(match[1]), last, match[3])

    @property
    def name(self) -> str:
        """Its file name."""
        if self.kind == SEGMENT:
            return f"{self.first:09d}-{self.last:09d}.{self.kind}"
        return f"{self.last:09d}.{self.kind}"

    @property
    def of_entries(self) -> bool:
        """Whether it can be merged."""
        return self.kind in {SINGLE, SEGMENT}

    def holds(self, other: Piece) -> bool:
        """Whether it makes another one of entries superfluous."""
        return self != other and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class Listing:
    """The pieces of a manifest as they were listed at one time."""

    pieces: frozenset[Piece]

    @staticmethod
    def of(folder: Path) -> Listing:
        """List a folder, which may be missing; names that are not a manifest's are left out."""
        try:
            found = [Piece.of(name) for name in os.listdir(folder)]  # noqa: PTH208 - a third of the time
        except FileNotFoundError:
            found = []
        return Listing(frozenset(piece for piece in found if piece is not None))

    @staticmethod
    def settled(folder: Path) -> Listing:
        """List a folder in which others merge.

        A single pass over a directory may miss a segment that is put meanwhile, and what it replaces, which is removed
        after that. The next pass finds the segment, so that two that agree have missed nothing.
        """
        before = Listing.of(folder)
        while (after := Listing.of(folder)) != before:
            before = after
        return after

    @cached_property
    def compact(self) -> Piece | None:
        """The compaction of an earlier version, if there is one."""
        return self._newest(COMPACT)

    @cached_property
    def expired(self) -> Piece | None:
        """What says up to where epochs have left by their age."""
        return self._newest(EXPIRED)

    @property
    def floor(self) -> int:
        """The newest epoch that a compaction holds or that has left."""
        return max((piece.last for piece in (self.compact, self.expired) if piece is not None), default=-1)

    @cached_property
    def live(self) -> list[Piece]:
        """The pieces whose entries count, in the order of their epochs; those above the floor only."""
        top = [piece for piece in (self.compact, self.expired) if piece is not None]
        covered = self.floor
        entries = []
        # Of those that begin alike the longest first: whatever ends within it is a part of it.
        for piece in sorted(filter(_of_entries, self.pieces), key=lambda each: (each.first, -each.last)):
            if piece.last > covered:
                entries.append(piece)
                covered = piece.last
        return top + entries

    @property
    def superfluous(self) -> frozenset[Piece]:
        """The pieces that a merge, a newer one of their kind or their age has left without meaning."""
        return self.pieces - frozenset(self.live)

    @property
    def newest(self) -> int | None:
        """The newest epoch; None for an empty manifest.

        The newest entry is never in a segment: a block is merged only when an entry beyond it is there.
        """
        return max((piece.last for piece in self.pieces if piece.kind != SEGMENT), default=None)

    def contains(self, epoch: int) -> bool:
        """Whether an epoch with rows has been published; those below one that was are taken to be."""
        return epoch <= self.floor or any(piece.first <= epoch <= piece.last for piece in self.live)

    def within(self, block: Piece) -> list[Piece]:
        """What a merge of a block would put together."""
        return [piece for piece in self.live if piece.of_entries and block.holds(piece)]

    def begins_block(self, epoch: int) -> bool:
        """Whether an epoch's entry is the first of its smallest block, so that blocks before it are whole."""
        (block,) = blocks_at(epoch, 1, 0)
        return len(self.within(block)) <= 1

    def _newest(self, kind: str) -> Piece | None:
        return max((piece for piece in self.pieces if piece.kind == kind), default=None)


def _of_entries(piece: Piece) -> bool:
    return piece.of_entries


def blocks_at(epoch: int, level: int, *back: int) -> Iterable[Piece]:
    """The blocks of a level that lie so many blocks before that of an epoch."""
    size = FANOUT**level
    starts = (epoch // size * size - each * size for each in back)
    return [Piece(start, start + size - 1, SEGMENT) for start in starts if start >= 0]
