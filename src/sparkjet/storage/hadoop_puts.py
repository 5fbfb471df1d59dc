"""How a file is created if it is absent, by scheme: what each of Hadoop's file systems does in one step."""

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
"""Creates a path with its whole content; any error leaves open who has created it."""


class Way(NamedTuple):
    """How a scheme puts.

    Attributes:
        put: The step itself.
        capability: What the file system must say it can do, if it has to be asked.
        has_directories: Whether a directory exists without files in it.
        is_tested: Whether ``put`` is known to have one winner; others are refused by name.
    """

    put: Put
    capability: str | None = None
    has_directories: bool = True
    is_tested: bool = True


def by_rename(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """Write a hidden file, then rename it without overwriting: created in place, readers would see half of it."""
    hidden = system.path(f"{path.getParent().toString()}/.{path.getName()}.{uuid.uuid4().hex}")
    stream = system.java.create(hidden, False)
    try:
        write(stream, content)
        system.context.rename(hidden, path, system.not_overwriting)
    except JAVA_ERRORS:
        with suppress(*JAVA_ERRORS):
            # Closing a hidden file publishes nothing, and HDFS would renew the lease of an open one for ever.
            stream.close()
        with suppress(*JAVA_ERRORS):
            # One that stays is removed by the next start.
            system.java.delete(hidden, False)
        raise


def by_conditional_create(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """One conditional PUT when the stream is closed; a plain ``create(path, false)`` would let the last writer win."""
    builder = system.java.createFile(path).create().overwrite(True).must(CONDITIONAL, True)
    write(builder.build(), content)


def by_create(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """Create without overwriting, where the store compares generations when the stream is closed."""
    write(system.java.create(path, False), content)


def write(stream: Any, content: bytes) -> None:
    """Write and close a stream; one that has failed is abandoned, because to close it would publish a part."""
    try:
        stream.write(content)
        if stream.hasCapability("hsync"):
            stream.hsync()
    except JAVA_ERRORS:
        with suppress(*JAVA_ERRORS):
            # A stream that cannot be aborted is left open: only closing it would publish what it has.
            stream.abort()
        raise
    stream.close()


WAYS = {
    "hdfs": Way(by_rename),
    "s3a": Way(by_conditional_create, CONDITIONAL, has_directories=False),
    "abfs": Way(by_rename),
    "abfss": Way(by_rename),
    "gs": Way(by_create, has_directories=False),
}
"""By scheme; with any other one, :data:`UNTESTED`."""
UNTESTED = Way(by_rename, is_tested=False)
