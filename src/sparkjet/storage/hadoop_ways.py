"""Ways of Hadoop's file systems: how a scheme puts a file so that one writer wins, and moves one."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from sparkjet.storage.hadoop_file_system import HadoopFileSystem


CONDITIONAL = "fs.option.create.conditional.overwrite"
"""S3A's capability and option of a PUT with ``If-None-Match``."""

Put = Callable[["HadoopFileSystem", Any, bytes], None]
"""Creates a path with its whole content; after an error it is open who has created it."""
Replace = Callable[["HadoopFileSystem", Any, Any], None]
"""Puts a file in the place of another one, which readers find until then."""
FEW_BYTES = 1 << 20
"""The size up to which a file is sent through the driver sooner than a store has been asked for a rename."""


def renaming_over(system: HadoopFileSystem, old: Any, new: Any) -> None:
    """One rename that overwrites: what is created over a file would be read half-written."""
    system.context.rename(old, new, system.overwriting)


def writing_over(system: HadoopFileSystem, old: Any, new: Any) -> None:
    """One PUT when the stream is closed; a rename would remove the target, and copy then."""
    source = system.java.open(old)
    try:
        _transfer(source, system.java.create(new, True))
    finally:
        source.close()


def copying_few(system: HadoopFileSystem, old: Any, new: Any) -> bool:
    """Copy a small file through the driver in three requests, if there is no other one: a rename of S3A's takes nine.

    Returns False for a larger file, which the store should copy itself.
    """
    status = system.java.getFileStatus(old)
    if status.getLen() > FEW_BYTES:
        return False
    # Opened by its name alone, or with its size alone, it would be looked for once more.
    source = system.java.openFile(old).withFileStatus(status).build().get()
    try:
        stream = system.java.createFile(new).create().overwrite(True).must(CONDITIONAL, True).build()
        _transfer(source, stream)
    finally:
        source.close()
    return True


def _transfer(source: Any, stream: Any) -> None:
    try:
        source.transferTo(stream)
    except JAVA_ERRORS:
        with suppress(*JAVA_ERRORS):
            # As in `write`: closing would publish a part.
            stream.abort()
        raise
    stream.close()


class Way(NamedTuple):
    """How a scheme puts files.

    Attributes:
        put: The put operation.
        replace: Puts a file in the place of another one.
        capability: The capability to require of the file system, if it has to be asked.
        has_directories: Whether directories exist without files.
        is_tested: Whether ``put`` is known to have one winner; others are refused by name.
        copy: Copies a file unless there is another one, where that takes less than a rename: if it is small. Returns
            whether it has; after an error it is open who has created the copy.
    """

    put: Put
    replace: Replace = renaming_over
    capability: str | None = None
    has_directories: bool = True
    is_tested: bool = True
    copy: Callable[[HadoopFileSystem, Any, Any], bool] | None = None


def by_rename(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """Write a hidden file, then rename it without overwriting: if created in place, readers would see half of it."""
    hidden = system.path(f"{path.getParent().toString()}/.{path.getName()}.{uuid.uuid4().hex}")
    stream = system.java.create(hidden, False)
    try:
        write(stream, content)
        system.context.rename(hidden, path, system.not_overwriting)
    except JAVA_ERRORS:
        with suppress(*JAVA_ERRORS):
            # Closing a hidden file publishes nothing, and HDFS would renew the lease of an open one forever.
            stream.close()
        with suppress(*JAVA_ERRORS):
            # One that stays is removed by the next start.
            system.java.delete(hidden, False)
        raise


def by_conditional_create(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """One conditional PUT when the stream is closed; with a plain ``create(path, false)`` the last writer would win."""
    builder = system.java.createFile(path).create().overwrite(True).must(CONDITIONAL, True)
    write(builder.build(), content)


def by_create(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """Create without overwriting, in a store that compares generations when the stream is closed."""
    write(system.java.create(path, False), content)


def write(stream: Any, content: bytes) -> None:
    """Write and close a stream; a failed one is abandoned, because closing it would publish a part."""
    try:
        stream.write(content)
        if stream.hasCapability("hsync"):
            stream.hsync()
    except JAVA_ERRORS:
        with suppress(*JAVA_ERRORS):
            # A stream that cannot be aborted is left open: closing it would publish what it has.
            stream.abort()
        raise
    stream.close()


WAYS = {
    "hdfs": Way(by_rename),
    "s3a": Way(by_conditional_create, writing_over, CONDITIONAL, has_directories=False, copy=copying_few),
    "abfs": Way(by_rename),
    "abfss": Way(by_rename),
    "gs": Way(by_create, writing_over, has_directories=False),
}
"""Ways to put by scheme; :data:`UNTESTED` for any other."""
UNTESTED = Way(by_rename, is_tested=False)
