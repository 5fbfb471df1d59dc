"""The pages that are open: each notes its address where only its user reads it, for ``top`` and ``page``."""

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
        process: The process's id.
        address: Where the page is.
        token: What it asks for.
    """

    process: int
    address: str
    token: str

    def __repr__(self) -> str:
        """Without the token: tools that report errors show the values of variables."""
        return f"OpenPage({self.process}, {self.address!r})"

    @property
    def url(self) -> str:
        """What a browser opens: it does not send what follows the ``#``, so that no server and no proxy logs it."""
        return f"{self.address}#token={self.token}"


class Note:
    """The note of one page, until :meth:`remove` or the end of the process, however it ends.

    Args:
        page: The page.
        directory: A directory of this user's alone; by default the one that :func:`open_pages` looks at.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, page: OpenPage, directory: Path | None = None) -> None:
        where = directory or _directory()
        port = page.address.rstrip("/").rpartition(":")[2]
        self._path = where / f"{page.process}-{port}{_SUFFIX}"
        unfinished = self._path.with_suffix(".new")
        # One of a process that had this id before, and was killed in writing it.
        unfinished.unlink(missing_ok=True)
        self._file = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            # Held as long as the process lives: ids of processes are used again, and differ between containers.
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.write(self._file, msgspec.json.encode(page))
            # Renamed when it is whole and locked: a reader takes what is not locked for left over.
            unfinished.rename(self._path)
        except BaseException:
            os.close(self._file)
            raise

    def remove(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def open_pages(directory: Path | None = None) -> list[OpenPage]:
    """The pages that are open; the notes of those whose process has ended are removed."""
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
    """Once a process: where the name is another user's, each call makes a directory, and ``top`` looks each second."""
    return _directory()
