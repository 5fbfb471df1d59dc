"""The directory store: a query's record log, deltas and blobs in one directory, on any file system."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import RecoveryError, StorageError
from sparkjet.storage.directory import Remote
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import as_directory
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.snapshots.store import Delta
    from sparkjet.storage.directory import Directory

_SUFFIX = ".json"
_PINS = "pins"
_REVISION = re.compile(r"(\d{12})\.(\d+)\.json")
"""No pin has such a name: its slot is followed by a hyphen."""


class DirectoryStore:
    """Slots in ``log/``, deltas as Parquet directories in ``state/``, blobs in ``blobs/``, pins in ``pins/``.

    Every executor must see the directory under the same path or URI. Thread-safe if the file system is.
    """

    def __init__(self, directory: Path | Directory) -> None:
        self._directory = as_directory(directory)
        self._log = self._directory.below("log")
        self._state = self._directory.below("state")
        self._blobs = self._directory.below("blobs")
        self._pins = self._directory.below(_PINS)
        self._places: dict[str, Directory] = {}
        """The place of everything that this process has written or read, so that removing it takes no search."""
        self._files: dict[str, list[str]] = {}
        """The files of deltas, likewise."""

    def open(self, option: str) -> None:
        """Create the directories, test put-if-absent, and remove temporary files left by crashes."""
        self._log.check(option)
        self._state.create()
        self._blobs.create()
        self._log.sweep()

    def put(self, slot: int, content: bytes) -> bool:
        """See :meth:`SnapshotStore.put`."""
        return self._log.put(_slot(slot), content)

    def slots(self) -> list[int]:
        """See :meth:`SnapshotStore.slots`."""
        return sorted(slot for slot in map(_number, self._log.names()) if slot is not None)

    def sizes(self) -> dict[int, int]:
        """Sizes of the slots in bytes, ascending by slot, from one listing: a pin may keep 86,400 slots a day."""
        numbers = {_number(name): size for name, size in self._log.files().items()}
        return dict(sorted((slot, size) for slot, size in numbers.items() if slot is not None))

    def read(self, slot: int) -> bytes:
        """See :meth:`SnapshotStore.read`."""
        return self._log.read(_slot(slot))

    def trim(self, below: int) -> None:
        """See :meth:`SnapshotStore.trim`."""
        self._log.remove_files(_slot(slot) for slot in self.slots() if slot < below)

    def put_pin(self, slot: int, name: str, content: bytes) -> bool:
        """See :meth:`SnapshotStore.put_pin`."""
        self._pins.create()
        return self._pins.put(_pin(slot, name), content)

    def pins(self) -> list[tuple[int, str]]:
        """See :meth:`SnapshotStore.pins`."""
        if _PINS not in self._directory.names():
            # Mostly: what is missing itself is looked for in several ways, by as many requests.
            return []
        found = (name.removesuffix(_SUFFIX).partition("-") for name in self._pins.names() if name.endswith(_SUFFIX))
        return sorted((int(slot), name) for slot, _, name in found if slot.isdecimal() and name)

    def read_pin(self, slot: int, name: str) -> bytes:
        """See :meth:`SnapshotStore.read_pin`."""
        return self._pins.read(_pin(slot, name))

    def remove_pin(self, slot: int, name: str) -> None:
        """See :meth:`SnapshotStore.remove_pin`."""
        self._pins.remove_files([_pin(slot, name)])
        if all(other != slot for other, _ in self.pins()):
            self._pins.remove_files(_revision(slot, number) for number in self._revisions().get(slot, ()))

    def revise(self, slot: int, content: bytes, after: int) -> bool:
        """See :meth:`SnapshotStore.revise`; writes a file with the next number: not every store can replace one."""
        own = _revision(slot, after + 1)
        # A put that was sent twice meets its own file.
        if not self._pins.put(own, content) and not (self._pins.exists(own) and self._pins.read(own) == content):
            return False
        there = self._revisions().get(slot, [])
        if max(there, default=0) > after + 1:
            # The number was free again: others have gone on, and removed what they have replaced.
            self._pins.remove_files([own])
            return False
        self._pins.remove_files(_revision(slot, each) for each in there if each <= after)
        return True

    def revised(self) -> dict[int, tuple[int, bytes]]:
        """See :meth:`SnapshotStore.revised`."""
        while True:
            newest = {slot: max(each) for slot, each in self._revisions().items()}
            try:
                return {slot: (each, self._pins.read(_revision(slot, each))) for slot, each in newest.items()}
            except FileNotFoundError:
                # Revised again since it was listed, or no longer pinned.
                continue

    def _revisions(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for name in self._pins.names():
            revision = _REVISION.fullmatch(name)
            if revision is not None:
                found.setdefault(int(revision[1]), []).append(int(revision[2]))
        return found

    def write_delta(self, name: str, partials: DataFrame) -> dict[str, int]:
        """See :meth:`SnapshotStore.write_delta`."""
        writer = FileWriter(self._state.below(name), read_back=True)
        files = write(partials, writer, StorageError).files
        self._state.sync(f"{name}/{file}" for file in files)
        self._places[name], self._files[name] = self._state, list(files)
        return files

    def read_delta(self, session: SparkSession, delta: Delta) -> DataFrame:
        """See :meth:`SnapshotStore.read_delta`."""
        if delta.rows and not delta.files:
            message = (
                f"The snapshot says that {delta.name} has {delta.rows} rows, but names no file of it: they were "
                "written to a directory that the driver did not see. Start from scratch with another "
                "checkpointLocation."
            )
            raise RecoveryError(message)
        directory = self._state.below(delta.name)
        there = directory.files()
        missing = [file for file in delta.files if file not in there]
        if missing:
            message = (
                f"The snapshot names {len(delta.files)} files of {delta.name}, but {len(missing)} are missing, the "
                f"first: {directory.below(missing[0])}. Restore the files, or start from scratch with another "
                "checkpointLocation."
            )
            raise RecoveryError(message)
        self._places[delta.name] = self._state
        # Only what an executor has lost may be read: as few files as that is in.
        self._files.setdefault(delta.name, list(delta.files))
        return read(session, directory, delta.files)

    def put_blob(self, name: str, content: bytes) -> None:
        """See :meth:`SnapshotStore.put_blob`."""
        self._blobs.write(name, content)
        self._places[name] = self._blobs

    def read_blob(self, name: str) -> bytes:
        """See :meth:`SnapshotStore.read_blob`."""
        try:
            content = self._blobs.read(name)
        except FileNotFoundError as error:
            missing = self._blobs.below(name)
            message = f"The snapshot names {missing}, which is missing. Restore the file, or start from scratch."
            raise RecoveryError(message) from error
        self._places[name] = self._blobs
        return content

    def names(self) -> list[str]:
        """See :meth:`SnapshotStore.names`."""
        return sorted([*self._state.names(), *self._blobs.names()])

    def remove(self, name: str) -> None:
        """See :meth:`SnapshotStore.remove`."""
        place = self._places.pop(name, None)
        if place is not self._state:
            self._blobs.remove_files([name])
        files = self._files.pop(name, None)
        if files is not None and isinstance(self._state, Remote):
            # What attempts that were given up have left there may stay until the next start.
            self._state.discard(name, files)
        elif place is not self._blobs:
            # With the marker of an empty directory, which is no file.
            self._state.remove(name)


def _number(name: str) -> int | None:
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if name != stem and stem.isdecimal() else None


def _slot(slot: int) -> str:
    return f"{slot:012d}{_SUFFIX}"


def _revision(slot: int, number: int) -> str:
    return f"{slot:012d}.{number}{_SUFFIX}"


def _pin(slot: int, name: str) -> str:
    return f"{slot:012d}-{name}{_SUFFIX}"
