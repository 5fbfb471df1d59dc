"""The protocol of snapshot stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Delta(msgspec.Struct, frozen=True):
    """Stored partial rows: their name in the store, their files and number, and the range of their frames.

    ``partitions`` is the number of partitions of the state if each file holds one of them, None otherwise. ``size`` is
    that of the files in bytes; None where it is not known.
    """

    name: str
    files: list[str]
    rows: int
    low: int
    high: int
    partitions: int | None = None
    size: int | None = None


class SnapshotStore(Protocol):
    """Slots, deltas and blobs of one query; every method runs on the driver.

    *Slots* are the record log: each is written once, and the first writer wins; a *pin* is a name for one of them.
    *Deltas* are partial rows, written by the executors. *Blobs* are small files written by the driver. Names of deltas
    and blobs start with the number of the takeover that wrote them and are never reused, so that a fenced driver can
    neither overwrite nor remove what its successor needs.
    """

    def put(self, slot: int, content: bytes) -> bool:
        """Write a slot durably if it is free; False if it is taken. Readers never see partial content."""
        ...

    def slots(self) -> list[int]:
        """Numbers of the existing slots, ascending."""
        ...

    def read(self, slot: int) -> bytes:
        """Content of a slot; raises :class:`FileNotFoundError` if there is none."""
        ...

    def trim(self, below: int) -> None:
        """Remove the slots below a number."""
        ...

    def put_pin(self, slot: int, name: str, content: bytes) -> bool:
        """Write a pin durably, a name for a slot; False if that slot already has that name, which stays as it was."""
        ...

    def pins(self) -> list[tuple[int, str]]:
        """The pinned slots and the names of their pins, ascending."""
        ...

    def read_pin(self, slot: int, name: str) -> bytes:
        """Content of a pin; raises :class:`FileNotFoundError` if there is none."""
        ...

    def remove_pin(self, slot: int, name: str) -> None:
        """Remove a pin; does nothing if there is none."""
        ...

    def revise(self, slot: int, content: bytes, after: int) -> bool:
        """Durably write a revision of a pinned slot, unless it is no longer at the one that it is made of.

        Args:
            slot: The slot.
            content: The content that takes the place of the slot's; readers find either as a whole.
            after: Number of the revision that the content was made of, 0 for the slot itself.

        Returns:
            False if the slot was revised since by somebody else, whose revision stays.
        """
        ...

    def revised(self) -> dict[int, tuple[int, bytes]]:
        """Number and content of each slot's revision, while it is pinned; :meth:`read` returns the first content."""
        ...

    def write_delta(self, name: str, partials: DataFrame) -> dict[str, int]:
        """Write rows durably under a new name; returns the files for the record, with their sizes in bytes.

        Raises:
            StorageError: Not all files can be found, e.g. because executors do not share the directory.
        """
        ...

    def read_delta(self, session: SparkSession, delta: Delta) -> DataFrame:
        """Rows of a delta; a missing file raises :class:`sparkjet.errors.RecoveryError` naming it."""
        ...

    def put_blob(self, name: str, content: bytes) -> None:
        """Write a small file durably."""
        ...

    def read_blob(self, name: str) -> bytes:
        """Content of a blob; raises :class:`sparkjet.errors.RecoveryError` if it is missing."""
        ...

    def names(self) -> list[str]:
        """Names of all deltas and blobs, complete or not."""
        ...

    def remove(self, name: str) -> None:
        """Remove a delta or blob; does nothing if the name does not exist."""
        ...
