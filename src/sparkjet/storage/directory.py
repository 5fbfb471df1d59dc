"""The protocol of directories, which hold everything that sparkjet stores, on a file system or in an object store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Directory(Protocol):
    """A place with files, used on the driver; its ``str()`` is for messages.

    Names are relative, with ``/`` between their parts, which must not be empty or begin with a dot: names that do
    belong to the implementation or to others. Thread-safe, and other processes may use the same place.

    Failures raise an :class:`OSError`: :class:`FileNotFoundError` if there is no such file, and
    :class:`PermissionError` if it is not allowed.
    """

    @property
    def path(self) -> Path | None:
        """The path on this machine; None if it is not below one."""
        ...

    def uri(self, name: str = "") -> str:
        """The URI of the directory or a file in it, for Spark's readers and writers."""
        ...

    def resolved(self) -> str:
        """The real location; if one directory is within another, under whatever name, theirs begin alike."""
        ...

    def below(self, name: str) -> Directory:
        """A directory inside this one; neither has to exist."""
        ...

    def check(self, option: str, *, create: bool = True) -> None:
        """Test before the start that :meth:`put` has only one winner here.

        Args:
            option: Name of the user's option, for messages.
            create: False to leave nothing behind: the nearest existing parent may be tested instead.

        Raises:
            AnalysisError: It has several, or nothing can be written; the message names ``option``.
        """
        ...

    def create(self) -> None:
        """Create the directory and its missing parents, durably; does nothing if it exists."""
        ...

    def put(self, name: str, content: bytes) -> bool:
        """Write a file durably unless it exists: among any number of writers one wins, and no reader sees half a file.

        The directory must exist. Contents should differ from anyone else's: if a response was lost, the file itself is
        read to find out who has won, so a second writer of the *same* bytes may be told that it has won as well.

        Raises:
            StorageError: Whether the file was written could not be determined in time.
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
        """Names of the files and directories directly in this one; empty if it is missing or not a directory."""
        ...

    def files(self) -> dict[str, int]:
        """Names and sizes of all files in and below the directory; empty if it is missing."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file to its final name, durable after :meth:`sync`; creates the target's directory if needed."""
        ...

    def sync(self, names: Iterable[str], *, contents: bool = True) -> None:
        """Make files durable that others have written or that were renamed, with all directories in between.

        Args:
            names: The files.
            contents: False if only their names may have changed.
        """
        ...

    def remove(self, name: str = "") -> None:
        """Remove a file, or a directory with everything in it; does nothing if there is none.

        Parts of a directory that cannot be removed may stay, without an error: whoever lists it next removes them.
        """
        ...

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files, some of which may be missing, in as few requests as possible."""
        ...

    def sweep(self) -> None:
        """Remove files in this directory that crashes in the middle of a :meth:`put` have left."""
        ...


@runtime_checkable
class Losable(Protocol):
    """A directory that may be lost as a whole although nobody has removed it, such as one in memory."""

    @property
    def identity(self) -> str:
        """The user's name for it, wherever it is: the same before and after the loss."""
        ...


@runtime_checkable
class Replacing(Protocol):
    """A directory in which a file may take the place of another one, as all have that Spark writes to."""

    def replace(self, source: str, target: str) -> None:
        """Put a file in the place of another one, durably: readers find either of them, whole, and never none.

        The source may stay.
        """
        ...


@runtime_checkable
class Remote(Protocol):
    """A directory in a store where a request takes time, and some calls take many."""

    def wait(self) -> None:
        """Wait until the store answers, unless it has done so just now: tasks of Spark give up sooner."""
        ...

    def publish(self, source: str, target: str) -> bool:
        """Like :meth:`Directory.rename`, but the source may stay; returns whether it does."""
        ...

    def discard(self, name: str, files: Sequence[str]) -> None:
        """Remove a directory in which these files are, all of them; any others in it may stay."""
        ...


@runtime_checkable
class HoldsRows(Protocol):
    """A directory that Spark's writers and readers cannot use: its own tasks carry rows there and back."""

    @property
    def packages(self) -> Mapping[str, str]:
        """Packages that its tasks need on executors: the name to install, by the name to import."""
        ...

    def write_rows(self, rows: DataFrame) -> dict[str, tuple[int, int]]:
        """Write one file per partition with rows; returns the attempts' files that count, with their rows and sizes.

        The names contain the partition number, like those of Spark's files: ``part-00003-…``.
        """
        ...

    def read_rows(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        """The rows of files that :meth:`write_rows` has written."""
        ...
