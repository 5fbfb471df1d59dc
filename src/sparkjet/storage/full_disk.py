"""Disks that take no more: what a failure that comes from one means, and which disk it is."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparkjet.errors import SparkjetError, StorageError, chain

REASONS = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)}
"""What the system says of such a disk, in Java's messages too."""
_SPARKS_TARGET = re.compile(r"writing rows to (?:file:)?(/[^\n]*?)\.?(?:\s|$)")
_ROOM = 2**16
"""Bytes; a disk with less is taken to be full, as the ballast of a failed write may be gone by now."""


@contextmanager
def full_disks_named(places: Sequence[Path]) -> Iterator[None]:
    """Raise a failure that comes from a full or read-only disk as a :class:`StorageError`.

    Args:
        places: Directories that the query writes into, to find out which it was where the failure does not say.
    """
    try:
        yield
    except Exception as error:
        found = full_disk(error, places)
        if found is None:
            raise
        raise found from error


def full_disk(error: BaseException, places: Sequence[Path]) -> StorageError | None:
    """What to say of a failure that comes from a full or read-only disk, None of any other.

    Errors of ours say what they are about already.
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
