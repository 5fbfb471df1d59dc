"""The protocol of directories: everything sparkjet stores is in one, on a file system or in an object store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Directory(Protocol):
    """A place with files, on the driver; ``str()`` of it is for messages.

    Names are relative, with ``/`` between their parts, which must not be empty or begin with a dot: what begins with
    one belongs to the implementation or to others. Thread-safe, and other processes may use the same place.

    What cannot be done is an :class:`OSError`: :class:`FileNotFoundError` where there is no such file, and
    :class:`PermissionError` where it is not allowed.
    """

    @property
    def path(self) -> Path | None:
        """The path on this machine; None if it is not below one."""
        ...

    def uri(self, name: str = "") -> str:
        """The directory or a file in it, as Spark's readers and writers take it."""
        ...

    def resolved(self) -> str:
        """Where it really is: of two directories that are in one another, by whatever names, this begins alike."""
        ...

    def below(self, name: str) -> Directory:
        """A directory in this one; neither has to exist."""
        ...

    def check(self, option: str, *, create: bool = True) -> None:
        """Test before the start that :meth:`put` has one winner here.

        Args:
            option: Name of the user's option, for messages.
            create: False to leave nothing behind: the nearest existing parent may be tested instead.

        Raises:
            AnalysisError: It has not, or nothing can be written; the message names ``option``.
        """
        ...

    def create(self) -> None:
        """Create the directory with its missing parents, durably; does nothing if it exists."""
        ...

    def put(self, name: str, content: bytes) -> bool:
        """Write a file durably unless it exists: one of any number of writers wins, and no reader sees half a file.

        The directory must exist. Contents should be unlike anyone else's: where an answer was lost, the file itself is
        read to find out who has won, so a second writer of the *same* bytes may be told that it has won as well.

        Raises:
            StorageError: It could not be found out in time whether the file was written.
        """
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file durably under a name that nobody else uses; the directory must exist."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A file for reading, from any position."""
        ...

    def checksum(self, name: str) -> int:
        """The CRC-32 of a file, which may be large."""
        ...

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or directory; a directory without files may count as missing."""
        ...

    def names(self) -> list[str]:
        """Names of the files and directories in this one, not below; empty if it is missing or not a directory."""
        ...

    def files(self) -> dict[str, int]:
        """Names and sizes of all files in and below the directory; empty if it is missing."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file to its final name, durable after :meth:`sync`; the target's directory is created if needed."""
        ...

    def sync(self, names: Iterable[str], *, contents: bool = True) -> None:
        """Make files durable that others have written or that were renamed, with all directories between.

        Args:
            names: The files.
            contents: False if only their names may have changed.
        """
        ...

    def remove(self, name: str = "") -> None:
        """Remove a file, or a directory with all that is in it; does nothing if there is none.

        What of a directory cannot be removed may stay, without an error: whoever lists it next removes it.
        """
        ...

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files of which some may be missing, with as few requests as there can be."""
        ...

    def sweep(self) -> None:
        """Remove files in this directory that crashes have left in the middle of a :meth:`put`."""
        ...


@runtime_checkable
class Losable(Protocol):
    """A directory that may be lost as a whole although nobody has removed it, as what is only in memory."""

    @property
    def identity(self) -> str:
        """What the user calls it, wherever it is: the same before and after the loss."""
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A directory that Spark's own writers and readers cannot use: tasks of its own carry rows there and back."""

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that its tasks need on executors: the name to install, by the name that is imported."""
        ...

    def write_rows(self, rows: DataFrame) -> dict[str, int]:
        """Write one file for each partition with rows; returns those of the attempts that count, with their rows.

        Their names contain the number of the partition, as those of Spark's files do: ``part-00003-…``.
        """
        ...

    def read_rows(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        """The rows of files that :meth:`write_rows` has written."""
        ...
