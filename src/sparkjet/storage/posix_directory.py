"""Directories on POSIX file systems: local ones, and those that all machines mount."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sparkjet.storage.paths import (
    check_put_if_absent,
    make_directories,
    put_if_absent,
    remove_temporaries,
    spark_uri,
    sync_levels,
    sync_path,
    write_durably,
)

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

_CHUNK = 1 << 20


class PosixDirectory:
    """A :class:`~sparkjet.storage.directory.Directory` where ``link()`` never overwrites and ``fsync`` is honoured."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def __repr__(self) -> str:
        return f"PosixDirectory({str(self._path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PosixDirectory) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def path(self) -> Path:
        """See :meth:`Directory.path`."""
        return self._path

    def uri(self, name: str = "") -> str:
        """See :meth:`Directory.uri`."""
        return spark_uri(self._path / name)

    def resolved(self) -> str:
        """See :meth:`Directory.resolved`; follows links."""
        return str(self._path.resolve())

    def below(self, name: str) -> PosixDirectory:
        """See :meth:`Directory.below`."""
        return PosixDirectory(self._path / name)

    def check(self, option: str, *, create: bool = True) -> None:
        """See :meth:`Directory.check`."""
        check_put_if_absent(self._path, option, create=create)

    def create(self) -> None:
        """See :meth:`Directory.create`."""
        make_directories(self._path)

    def put(self, name: str, content: bytes) -> bool:
        """See :meth:`Directory.put`."""
        return put_if_absent(self._path / name, content)

    def write(self, name: str, content: bytes) -> None:
        """See :meth:`Directory.write`."""
        write_durably(self._path / name, content)
        sync_path((self._path / name).parent)

    def read(self, name: str) -> bytes:
        """See :meth:`Directory.read`."""
        return (self._path / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        """See :meth:`Directory.open`."""
        return (self._path / name).open("rb")

    def checksum(self, name: str) -> int:
        """See :meth:`Directory.checksum`."""
        checksum = 0
        with self.open(name) as content:
            while chunk := content.read(_CHUNK):
                checksum = zlib.crc32(chunk, checksum)
        return checksum

    def exists(self, name: str = "") -> bool:
        """See :meth:`Directory.exists`."""
        return (self._path / name).exists()

    def names(self) -> list[str]:
        """See :meth:`Directory.names`."""
        try:
            return os.listdir(self._path)  # noqa: PTH208 - a third of the time
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self) -> dict[str, int]:
        """See :meth:`Directory.files`."""
        found = {}
        for folder, _, names in os.walk(self._path):
            for name in names:
                path = Path(folder, name)
                try:
                    found[path.relative_to(self._path).as_posix()] = path.stat().st_size
                except FileNotFoundError:
                    # Removed since it was listed, or a dangling link.
                    continue
        return found

    def rename(self, source: str, target: str) -> None:
        """See :meth:`Directory.rename`."""
        # Every level is synced afterwards, even if it exists: a crash may have come between its mkdir and its sync.
        (self._path / target).parent.mkdir(parents=True, exist_ok=True)
        (self._path / source).rename(self._path / target)

    def replace(self, source: str, target: str) -> None:
        """See :meth:`Replacing.replace`."""
        sync_path(self._path / source)
        (self._path / source).replace(self._path / target)
        sync_levels(self._path, [self._path / target])

    def sync(self, names: Iterable[str], *, contents: bool = True) -> None:
        """See :meth:`Directory.sync`."""
        files = [self._path / name for name in names]
        if contents:
            for file in files:
                sync_path(file)
        sync_levels(self._path, files)

    def remove_files(self, names: Iterable[str]) -> None:
        """See :meth:`Directory.remove_files`."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def remove(self, name: str = "") -> None:
        """See :meth:`Directory.remove`."""
        path = self._path / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """See :meth:`Directory.sweep`."""
        if self._path.is_dir():
            remove_temporaries(self._path)


def as_directory(place: Path | Directory) -> Directory:
    """A directory, converted if a path is given."""
    return PosixDirectory(place) if isinstance(place, Path) else place
