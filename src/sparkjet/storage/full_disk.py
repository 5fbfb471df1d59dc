"""Full and read-only disks: recognizing them as the cause of a failure, and naming the disk."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparkjet.errors import SparkjetError, StorageError, chain

REASONS = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)}
"""The system's messages for such a disk, which Java's exceptions contain too."""
_SPARKS_TARGET = re.compile(r"writing rows to (?:file:)?(/[^\n]*?)\.?(?:\s|$)")
_ROOM = 2**16
"""Bytes; a disk with less is considered full, as a failed write may have freed its partial file by now."""


@contextmanager
def full_disks_named(places: Sequence[Path]) -> Iterator[None]:
    """Convert failures caused by a full or read-only disk to :class:`StorageError`.

    Args:
        places: Directories that the query writes to, to find the disk if the failure does not name it.
    """
    try:
        yield
    except Exception as error:
        found = full_disk(error, places)
        if found is None:
            raise
        raise found from error


def full_disk(error: BaseException, places: Sequence[Path]) -> StorageError | None:
    """The error for a failure caused by a full or read-only disk, None for any other.

    sparkjet's own errors are not converted, as they already name their cause.
    """
    if isinstance(error, SparkjetError):
        return None
    # PySpark raises what it has translated "from None"; the disk may be named only by what that hides.
    errors = chain(error, suppressed=True)
    reason = next((reason for each in errors for reason in REASONS if reason in str(each)), None)
    if reason is None:
        return None
    remedy = "Make it writable" if REASONS[reason] == errno.EROFS else "Free space there"
    found = StorageError(
        f"{reason}: {_where(errors, places)}. The epoch is not decided or waits to be published; nothing is lost. "
        f"{remedy} and start the query again, it goes on where it stopped."
    )
    found.__cause__ = error
    return found


def _where(errors: Sequence[BaseException], places: Sequence[Path]) -> str:
    for each in errors:
        if isinstance(each, OSError) and each.filename is not None:
            return str(each.filename)
        target = _SPARKS_TARGET.search(str(each))
        if target is not None:
            return target[1]
    full = [str(place) for place in places if place.exists() and _is_full(place)]
    return " and ".join(full) or "a directory that Spark uses, perhaps of spark.local.dir"


def _is_full(place: Path) -> bool:
    disk = os.statvfs(place)
    return bool(disk.f_flag & os.ST_RDONLY) or disk.f_bavail * disk.f_frsize < _ROOM or disk.f_favail == 0
