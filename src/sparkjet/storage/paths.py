"""Local paths: the locations that sparkjet accepts, and files that survive a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from sparkjet.errors import AnalysisError
from sparkjet.storage.probe_names import is_left_behind, probe_name

PLAIN_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Hadoop's settings for local files without ``.crc`` files, each of which takes a process (``chmod``) to create."""
WRITING = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", **PLAIN_FILES}
"""Options of Spark's writer for sparkjet's directories, where ``_SUCCESS`` and ``.crc`` files are never read."""
CHECKING = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""Options of Spark's reader for such Parquet files: nothing is skipped, whatever the session's settings."""


def local_path(location: str, option: str) -> Path:
    """The path of a plain location or a ``file:`` URI.

    >>> local_path("file:///data/out", "path").as_posix()
    '/data/out'
    """
    # Not urlsplit(): # and ? are parts of names here, as they are in Hadoop.
    uri = _FILE_URI.match(location)
    path = location if uri is None else unquote(location[uri.end() :])
    host = uri["host"] if uri is not None else None
    if host and host != "localhost":
        # file://data/out would be written to /out.
        meant = f'Write "file:///{host}{path}", or "file://{path}" without the host.'
        message = f'{option}: in "{location}", {host} is the name of a host, and files are on this one. {meant}'
        raise AnalysisError(message)
    if not path:
        raise AnalysisError(f"{option}: the location is empty. Give a directory.")
    return Path(path).absolute()


def spark_uri(path: Path) -> str:
    """The path for Spark: not percent-encoded, as Hadoop does not decode %20."""
    return f"file:{path}"


def sync_path(path: Path) -> None:
    """Make a file's content durable, or a directory's entries: a power failure loses a new name until then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes, mode: Literal["xb", "wb"] = "wb") -> None:
    """Write a file and make its content durable, but not its name, until its directory is synced."""
    try:
        with path.open(mode) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is not None:
            raise
        # An error in the middle of a write does not name the file.
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, and sync each level."""
    missing = [directory]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for level in reversed(missing):
        level.mkdir(exist_ok=True)
        # Also if the directory exists: the process that created it may have crashed before this line.
        sync_path(level.parent)


def sync_levels(top: Path, files: Iterable[Path]) -> None:
    """Make the names of files below ``top`` durable, with all directories in between: partition columns may nest."""
    levels = {top}
    for file in files:
        for level in file.parents:
            if level in levels:
                break
            levels.add(level)
    for level in levels:
        sync_path(level)


def put_if_absent(path: Path, content: bytes) -> bool:
    """Create a file with its whole content unless it exists; returns False if it does.

    ``link`` fails if the name is taken, and publishes a complete file: no reader sees a partial one.
    """
    # A starting driver removes temporaries, as it cannot know that this one is in use, so this is retried. Not forever:
    # a file system that loses files, or /proc, must not hang the query.
    for attempt in range(_ATTEMPTS):
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        try:
            write_durably(temporary, content, "xb")
            os.link(temporary, path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            break
        finally:
            temporary.unlink(missing_ok=True)
    sync_path(path.parent)
    return True


def remove_temporaries(directory: Path) -> None:
    """Remove files left by crashes in :func:`put_if_absent`; a call that is still running retries."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def check_put_if_absent(directory: Path, option: str, *, create: bool = True) -> None:
    """Test put-if-absent in a directory, creating it if needed."""
    try:
        if create:
            make_directories(directory)
            tried = directory
        else:
            # A dangling link counts: otherwise it would be found only when the directory is created, after the
            # takeover.
            tried = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
        for left in [path for path in tried.iterdir() if is_left_behind(path.name)]:
            # It may belong to another user, in a shared parent directory.
            with contextlib.suppress(PermissionError):
                left.unlink(missing_ok=True)
        refuses = _refuses_to_overwrite(tried)
    except OSError as error:
        way_out = _WAYS_OUT.get(
            error.errno or 0, "Use a directory that this user may write and whose file system has hard links."
        )
        message = f'{option}: "{directory}" cannot hold decisions: {error.strerror or error}. {way_out}'
        raise AnalysisError(message) from error
    if not refuses:
        message = (
            f'{option}: the file system of "{directory}" overwrites existing files on link(), '
            "so two drivers could both decide. Use a POSIX file system."
        )
        raise AnalysisError(message)


def _refuses_to_overwrite(directory: Path) -> bool:
    probe = directory / probe_name()
    try:
        return put_if_absent(probe, b"") and not put_if_absent(probe, b"")
    finally:
        probe.unlink(missing_ok=True)


_FILE_URI = re.compile("file:(//(?P<host>[^/]*))?", re.IGNORECASE)
_ATTEMPTS = 10
_WAYS_OUT = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free space there and start again; nothing has been changed."),
    errno.EROFS: "Make it writable and start again; nothing has been changed.",
}
_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}")
