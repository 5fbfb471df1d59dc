"""The open pages: each notes its address where only its user can read it, for ``top`` and ``page``."""

from __future__ import annotations

import contextlib
import fcntl
import os
from functools import cache
from pathlib import Path

import msgspec

from sparkjet.known_types import known
from sparkjet.storage.local_directory import local_directory

_SUFFIX = ".json"


class OpenPage(msgspec.Struct, frozen=True):
    """A page that a process of this user serves on this machine.

    Attributes:
        process: Id of the process.
        address: Address of the page.
        token: The token that it asks for.
    """

    process: int
    address: str
    token: str

    def __repr__(self) -> str:
        """The page without its token: tools that report errors show the values of variables."""
        return f"OpenPage({self.process}, {self.address!r})"

    @property
    def url(self) -> str:
        """The URL for a browser: it does not send what follows the ``#``, so no server or proxy logs it."""
        return f"{self.address}#token={self.token}"


class Note:
    """The note of one page, until :meth:`remove` or the end of the process, however it ends.

    Args:
        page: The page.
        directory: A directory that only this user can access; by default the one that :func:`open_pages` reads.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, page: OpenPage, directory: Path | None = None) -> None:
        where = directory or _directory()
        port = page.address.rstrip("/").rpartition(":")[2]
        self._path = where / f"{page.process}-{port}{_SUFFIX}"
        unfinished = self._path.with_suffix(".new")
        # Left by a process that had this id before, and was killed while writing it.
        unfinished.unlink(missing_ok=True)
        self._file = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            # Held as long as the process lives: process ids are reused, and differ between containers.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.write(self._file, msgspec.json.encode(page))
            # Renamed once it is complete and locked: a reader takes an unlocked one for a leftover.
            unfinished.rename(self._path)
        except BaseException:
            os.close(self._file)
            raise

    def remove(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def open_pages(directory: Path | None = None) -> list[OpenPage]:
    """The open pages; removes the notes of those whose process has ended."""
    found = []
    for path in sorted((directory or _looked_at()).glob(f"*{_SUFFIX}")):
        # Another reader, or the page itself, may remove it at the same time.
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if _is_locked(file.fileno()):
                found.append(msgspec.json.decode(file.read(), type=known(OpenPage)))
            else:
                path.unlink()
    return found


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _directory() -> Path:
    return local_directory("pages:")


@cache
def _looked_at() -> Path:
    """Cached: if the name belongs to another user, each call would make a directory, and ``top`` looks every second."""
    return _directory()
