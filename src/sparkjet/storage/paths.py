"""Local paths: which locations sparkjet accepts, and files that survive a power cut."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from sparkjet.errors import AnalysisError

PLAIN_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Hadoop's settings for local files without a ``.crc`` beside each: to make one takes a process (``chmod``)."""
WRITING = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", **PLAIN_FILES}
"""Options of Spark's writer into a directory of ours: nobody reads ``_SUCCESS`` or a ``.crc``."""
CHECKING = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""Options of Spark's reader for Parquet that was written so: nothing is left out, whatever the session allows."""


def local_path(location: str, option: str) -> Path:
    """The path of a plain location or a ``file:`` URI.

    >>> local_path("file:///data/out", "path").as_posix()
    '/data/out'

    Raises:
        AnalysisError: For every other scheme: decisions need a put-if-absent, which is built for local and mounted
            POSIX directories only.
    """
    parts = urlsplit(location)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        message = (
            f'{option}: "{location}" has the scheme "{parts.scheme}:", which has no tested put-if-absent yet. '
            "Use a local directory or one mounted on every machine (a plain path or file:)."
        )
        raise AnalysisError(message)
    path = unquote(parts.path) if parts.scheme == "file" else location
    if not path:
        message = f"{option}: the location is empty. Give a directory."
        raise AnalysisError(message)
    return Path(path).absolute()


def spark_uri(path: Path) -> str:
    """The path as Spark wants it: Hadoop does not decode %20, so this is no percent-encoded URI."""
    return f"file:{path}"


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory durable: a new name is lost in a power cut until its directory is synced."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes, mode: Literal["xb", "wb"] = "wb") -> None:
    """Write a file and make its content durable; its name is not until its directory is synced."""
    try:
        with path.open(mode) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.filename is not None:
            raise
        # What fails in the middle of a write does not say where.
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_directories(directory: Path) -> None:
    """Create a directory and whatever is missing above it, each level durable in the one above."""
    missing = [directory]
    while not missing[-1].parent.is_dir():
        missing.append(missing[-1].parent)
    for level in reversed(missing):
        level.mkdir(exist_ok=True)
        # Also where the directory exists: whoever created it may have crashed before this line.
        sync_directory(level.parent)


def sync_levels(top: Path, files: Iterable[Path]) -> None:
    """Make names of files below ``top`` durable, and with them every directory between: partition columns may nest."""
    levels = {top}
    for file in files:
        for level in file.parents:
            if level in levels:
                break
            levels.add(level)
    for level in levels:
        sync_directory(level)


def put_if_absent(path: Path, content: bytes) -> bool:
    """Create a file with its whole content unless it exists; False if it does.

    ``link`` fails when the name is taken, and what it publishes is complete: no reader sees half a file.
    """
    # A driver that starts removes temporaries: a crash may have left this one, as far as it can tell. Another start
    # may do so again, but not for ever: a file system that loses files, or /proc, must not hang the query.
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
    sync_directory(path.parent)
    return True


def remove_temporaries(directory: Path) -> None:
    """Remove what crashes inside :func:`put_if_absent` have left; one that still runs starts over."""
    for path in directory.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def check_put_if_absent(directory: Path, option: str, *, create: bool = True) -> None:
    """Try a put-if-absent in a directory, creating it if needed.

    Args:
        directory: The directory.
        option: Name of the user's option, for messages.
        create: False to leave nothing behind: where the directory is missing, the nearest one above it is tried,
            which is of the same file system.

    Raises:
        AnalysisError: If the directory cannot be written or does not refuse to overwrite.
    """
    try:
        if create:
            make_directories(directory)
            tried = directory
        else:
            tried = next(path for path in (directory, *directory.parents) if path.exists())
        for left in [path for path in tried.iterdir() if _PROBE.match(path.name)]:
            # Another user's, in a directory above that is everybody's.
            with contextlib.suppress(PermissionError):
                left.unlink(missing_ok=True)
        # More than once: another driver that starts may take a probe for one that a crash has left.
        refuses = any(_refuses_to_overwrite(tried) for _ in range(3))
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
    # Hidden: the directory above may be one that users read.
    probe = directory / f".probe-{os.urandom(4).hex()}"
    try:
        return put_if_absent(probe, b"") and not put_if_absent(probe, b"")
    finally:
        probe.unlink(missing_ok=True)


_ATTEMPTS = 10
_WAYS_OUT = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free space there and start again; nothing has been changed."),
    errno.EROFS: "Make it writable and start again; nothing has been changed.",
}
_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}")
_PROBE = re.compile(r"\.{1,2}probe-[0-9a-f]{8}(\.\d+-[0-9a-f]{8})?$")
