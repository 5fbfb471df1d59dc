"""The protocol of snapshot stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Delta(msgspec.Struct, frozen=True):
    """Stored partial rows: the name they have in the store, their entries, and the frames they cover."""

    name: str
    files: list[str]
    rows: int
    low: int
    high: int


class SnapshotStore(Protocol):
    """Slots, deltas and blobs of one query; every method runs on the driver.

    *Slots* are the record log: written once, by whoever comes first. *Deltas* are partial rows, written by the
    executors. *Blobs* are small files of the driver. Names of deltas and blobs start with the number of the takeover
    that wrote them and are never used twice, so that a driver that was taken over can neither overwrite nor remove
    what its successor needs.
    """

    def put(self, slot: int, content: bytes) -> bool:
        """Write a slot durably if nobody has; False if it was taken. The content is never seen half-written."""
        ...

    def slots(self) -> list[int]:
        """Numbers of the slots that exist, ascending."""
        ...

    def read(self, slot: int) -> bytes:
        """Content of a slot; raises :class:`FileNotFoundError` if there is none."""
        ...

    def trim(self, below: int) -> None:
        """Remove the slots below a number."""
        ...

    def write_delta(self, name: str, partials: DataFrame) -> list[str]:
        """Write rows durably under a new name; the answer lists the entries that a record must name.

        Raises:
            StorageError: Not all of them can be found again, e.g. because executors do not share the directory.
        """
        ...

    def read_delta(self, session: SparkSession, delta: Delta) -> DataFrame:
        """Rows of a delta; a missing entry raises :class:`sparkjet.errors.RecoveryError` naming it."""
        ...

    def put_blob(self, name: str, content: bytes) -> None:
        """Write a small file durably."""
        ...

    def read_blob(self, name: str) -> bytes:
        """Content of a blob; raises :class:`sparkjet.errors.RecoveryError` if it is missing."""
        ...

    def names(self) -> list[str]:
        """Names of all deltas and blobs, whole or not."""
        ...

    def remove(self, name: str) -> None:
        """Remove a delta or blob; a name that does not exist is ignored."""
        ...
