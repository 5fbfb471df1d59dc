"""Full or read-only disks and exhausted file handles: recognized as the cause of a failure, with a remedy."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparkjet.errors import SparkjetError, StorageError, chain

_HANDLES = "Let this user have more file handles on that machine (ulimit -n, or LimitNOFILE of a service)"
_REMEDIES = {
    errno.ENOSPC: "Free space there",
    errno.EDQUOT: "Free space there",
    errno.EROFS: "Make it writable",
    # The longer message first, as it contains the other.
    errno.ENFILE: _HANDLES,
    errno.EMFILE: _HANDLES,
}
REASONS = {os.strerror(number): remedy for number, remedy in _REMEDIES.items()}
"""The system's messages, which Java's exceptions contain too, with their remedies."""
_SPARKS_TARGET = re.compile(
    rf"writing rows to (?:file:)?(/[^\n]*?)\.?(?:\s+SQLSTATE|\s+(?:{'|'.join(REASONS)})|\s*\n|\s*$)"
)
"""The directory named in Spark's error, including spaces."""
_ROOM = 2**16
"""Bytes; a disk with less is considered full, as a failed write may have freed its partial file by now."""


@contextmanager
def full_disks_named(places: Sequence[Path]) -> Iterator[None]:
    """Convert failures caused by a full or read-only disk, or by too few file handles, to :class:`StorageError`."""
    try:
        yield
    except Exception as error:
        found = full_disk(error, places)
        if found is None:
            raise
        raise found from error


def full_disk(error: BaseException, places: Sequence[Path]) -> StorageError | None:
    """The error for a failure caused by such a disk or by too few file handles, None for any other failure.

    sparkjet's own errors are not converted, as they already name their cause.
    """
    if isinstance(error, SparkjetError):
        return None
    # PySpark raises translated errors "from None"; the disk may be named only in what that hides.
    errors = chain(error, suppressed=True)
    reason = next((reason for each in errors for reason in REASONS if reason in str(each)), None)
    if reason is None:
        return None
    remedy = REASONS[reason]
    where = _target(errors) or (_driver() if remedy is _HANDLES else _full(places))
    found = StorageError(
        f"{reason}: {where}. The epoch is not decided or waits to be published; nothing is lost. {remedy} and start "
        "the query again, it goes on where it stopped."
    )
    found.__cause__ = error
    return found


def _target(errors: Sequence[BaseException]) -> str | None:
    """The file or directory that was to be written or opened, if an error names it."""
    for each in errors:
        if isinstance(each, OSError) and each.filename is not None:
            return str(each.filename)
        target = _SPARKS_TARGET.search(str(each))
        if target is not None:
            return target[1]
    return None


def _driver() -> str:
    return f"the driver may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} at a time, if it is the one"


def _full(places: Sequence[Path]) -> str:
    full = [str(place) for place in places if place.exists() and _is_full(place)]
    return " and ".join(full) or "a directory that Spark uses, perhaps of spark.local.dir"


def _is_full(place: Path) -> bool:
    disk = os.statvfs(place)
    return bool(disk.f_flag & os.ST_RDONLY) or disk.f_bavail * disk.f_frsize < _ROOM or disk.f_favail == 0
