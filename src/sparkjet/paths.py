"""Local paths: which locations sparkjet accepts, and files that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path
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


def put_if_absent(path: Path, content: bytes) -> bool:
    """Create a file with its whole content unless it exists; False if it does.

    ``link`` fails when the name is taken, and what it publishes is complete: no reader sees half a file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_directory(path.parent)
    return True


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
            directory.mkdir(parents=True, exist_ok=True)
            tried = directory
        else:
            tried = next(path for path in (directory, *directory.parents) if path.exists())
        # Hidden: the directory above may be one that somebody reads.
        probe = tried / f".probe-{os.urandom(4).hex()}"
        created = put_if_absent(probe, b"")
        try:
            refused = not put_if_absent(probe, b"")
        finally:
            probe.unlink()
    except OSError as error:
        message = (
            f'{option}: "{directory}" cannot hold decisions: {error.strerror or error}. '
            "Use a directory that this user may write and whose file system has hard links."
        )
        raise AnalysisError(message) from error
    if not (created and refused):
        message = (
            f'{option}: the file system of "{directory}" overwrites existing files on link(), '
            "so two drivers could both decide. Use a POSIX file system."
        )
        raise AnalysisError(message)
