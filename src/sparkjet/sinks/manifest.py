"""The manifest of a file sink: which files belong to which published epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sparkjet.paths import put_if_absent

HIDDEN = "_sparkjet"
COMPACT_EVERY = 50


class ManifestEntry(msgspec.Struct, frozen=True):
    """An epoch's published files, relative to the output directory.

    A compacted entry holds the files of all epochs up to its own.
    """

    epoch: int
    files: list[str]
    format: str
    schema: dict[str, Any]
    options: dict[str, str]


class Manifest:
    """Entries of one query's sink, each written once after all files of its epoch are in place.

    An entry that a long paused driver writes late is either the same as the one there or lies below a compacted
    entry and is not read: the manifest never goes back.
    """

    def __init__(self, directory: Path, query: str, sink: str) -> None:
        self._folder = directory / HIDDEN / query / sink / "manifest"

    @staticmethod
    def all_of(directory: Path) -> list[Manifest]:
        """The manifests of every query that wrote into an output directory."""
        folders = sorted((directory / HIDDEN).glob("*/*/manifest"))
        return [Manifest(directory, folder.parent.parent.name, folder.parent.name) for folder in folders]

    def contains(self, epoch: int) -> bool:
        """Whether the epoch has been published."""
        compacted, single = self._names()
        return epoch in single or any(epoch <= number for number in compacted)

    def add(self, entry: ManifestEntry) -> None:
        """Publish an entry; the same epoch again changes nothing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        put_if_absent(self._folder / f"{entry.epoch:09d}.json", msgspec.json.encode(entry))
        if len(self._names()[1]) >= COMPACT_EVERY:
            self._compact()

    def entries(self) -> list[ManifestEntry]:
        """All entries that count, oldest first."""
        while True:
            compacted, single = self._names()
            newest = max(compacted, default=None)
            names = [] if newest is None else [f"{newest:09d}.compact"]
            names += [f"{epoch:09d}.json" for epoch in sorted(single) if newest is None or epoch > newest]
            try:
                return [_DECODER.decode((self._folder / n).read_bytes()) for n in names]
            except FileNotFoundError:
                # A compaction removed an entry between the listing and the read; what replaced it is there now.
                continue

    def _compact(self) -> None:
        entries = self.entries()
        last = entries[-1]
        files = [file for entry in entries for file in entry.files]
        merged = msgspec.structs.replace(last, files=files)
        put_if_absent(self._folder / f"{last.epoch:09d}.compact", msgspec.json.encode(merged))
        compacted, single = self._names()
        for epoch in single:
            if epoch <= last.epoch:
                (self._folder / f"{epoch:09d}.json").unlink(missing_ok=True)
        for epoch in compacted:
            if epoch < last.epoch:
                (self._folder / f"{epoch:09d}.compact").unlink(missing_ok=True)

    def _names(self) -> tuple[set[int], set[int]]:
        """Epochs of the compacted and of the single entries."""
        if not self._folder.is_dir():
            return set(), set()
        names = [path for path in self._folder.iterdir() if path.stem.isdecimal()]
        return (
            {int(path.stem) for path in names if path.suffix == ".compact"},
            {int(path.stem) for path in names if path.suffix == ".json"},
        )


# When the module is imported, as in engine/record.py: built by several threads at once it could end the process.
_DECODER = msgspec.json.Decoder(ManifestEntry)
