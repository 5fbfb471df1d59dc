"""Files of tables: written by Spark before the decision, and named by no version of the table until after it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from sparkjet.errors import LostTransactionError, RefusedRowsError, SinkError
from sparkjet.known_types import known
from sparkjet.sinks.copies import origin
from sparkjet.sinks.naming import BEGINNING
from sparkjet.sinks.parquet_footer import ParquetFooter
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.paths import CHECKING
from sparkjet.storage.read_back import for_read_back
from sparkjet.storage.written import write
from sparkjet.time.writer_progress import WriterProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.storage.directory import Directory

OWN = "_sparkjet"
"""Directory of what is prepared; readers and maintenance leave alone what begins with an underscore."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


_AS_NAMES = {**CHECKING, "recursiveFileLookup": "true"}
"""Directories of partitions are names like others: what their values are, the table says."""
_BESIDE = "."
"""Between the name of an attempt's directory and what tells files beside it from others: in no other name of ours."""


@dataclass(frozen=True)
class Beside:
    """Files that an epoch gives the table beside its rows: those of a directory, with their sizes."""

    folder: str
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StagedFiles:
    """The Parquet files of attempts, each attempt's in a separate directory.

    An empty file in ``_sparkjet/QUERY/OUTPUT/prepared`` names the directory until its files are part of the table:
    orphans are found there, and not by looking through the table.

    Args:
        directory: Where the table has its files.
        prefix: What the names of the directories begin with.
        gathers: Whether an epoch waits for others: its handle says so to those who watch the query.
    """

    directory: Directory
    prefix: str = ""
    gathers: bool = False

    def write(
        self,
        rows: DataFrame,
        transaction: TransactionId,
        options: Mapping[str, str],
        partition_by: Sequence[str],
    ) -> Handle | None:
        """Write the rows of an attempt; what is common to all handles, None if there were no rows."""
        folder = self._folder(transaction)
        prepared = self._prepared(transaction.query, transaction.sink)
        self._mark(folder, prepared)
        count, files = self._write(rows, folder, options, partition_by)
        if not count:
            self._discard(folder, prepared)
            return None
        return self._handle(transaction, folder, count, files)

    def nothing(self, transaction: TransactionId) -> Handle:
        """The handle of an epoch without rows, which only tells the watermark: nothing is written for it."""
        return self._handle(transaction, self._folder(transaction), 0, [])

    def _handle(self, transaction: TransactionId, folder: str, count: int, files: list[list[Any]]) -> Handle:
        return {
            "directory": str(self.directory),
            "query": transaction.query,
            "sink": transaction.sink,
            "folder": folder,
            "epoch": transaction.epoch,
            "rows": count,
            "files": files,
            "progress": transaction.to_tell(count),
            **origin(transaction),
            **({"waits": True} if self.gathers else {}),
        }

    def write_within(
        self, rows: DataFrame, handle: Handle, name: str, options: Mapping[str, str], partition_by: Sequence[str]
    ) -> list[list[Any]]:
        """Write more files of an attempt, into its directory; they with their sizes."""
        return self._write(rows, f"{handle['folder']}/{name}", options, partition_by)[1]

    def write_beside(
        self, rows: DataFrame, handle: Handle, options: Mapping[str, str], partition_by: Sequence[str]
    ) -> Beside:
        """Write files that a decided epoch gives the table beside its own, into a separate directory each time."""
        folder = f"{handle['folder']}{_BESIDE}{uuid4().hex[:8]}"
        self._mark(folder, self._prepared(handle["query"], handle["sink"]))
        _, files = self._write(rows, folder, options, partition_by)
        return Beside(folder, tuple((name, size) for name, size in files))

    def check_required(
        self,
        handle: Handle,
        required: Sequence[str],
        in_paths: Sequence[str],
        what: str,
        stored: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse nulls where the table has none; nobody else looks, and its readers rely on it.

        ``stored`` has the names in the files, where they are others than the table's.
        """
        if not required:
            return
        for name, _ in handle["files"]:
            values, footer = values_of(name), ParquetFooter(self.directory, name)
            names = {column: (stored or {}).get(column, column) for column in required}
            null = [column for column, name in names.items() if column in in_paths and values.get(name) is None]
            null += [column for column, name in names.items() if column not in in_paths and footer.has_nulls(name)]
            if null:
                message = (
                    f"{what}: column {null[0]!r} has a null, and {self.directory} has it NOT NULL. Leave such rows "
                    f'out, where("{null[0]} IS NOT NULL"), or give a value with coalesce.'
                )
                raise RefusedRowsError(message)

    def check_there(self, handle: Handle, lost_by: str) -> None:
        """Check that every file is there with its size, right before the table is given them."""
        sizes = self.directory.below(handle["folder"]).files()
        beginning = f"{handle['folder']}/"
        lost = [name for name, size in handle["files"] if sizes.get(name.removeprefix(beginning)) != size]
        if lost:
            message = (
                f"Epoch {handle['epoch']} was decided, but {lost[0]} is not in {self.directory} as it was written, and "
                f"no version of the table has it: {handle['rows']} rows are lost, and the table is as it was. Restore "
                f"the file, or rerun the query from its input. {lost_by}"
            )
            raise LostTransactionError(message)

    def rows(self, session: SparkSession, files: Sequence[str], schema: StructType) -> DataFrame:
        """The rows of files of the table, by columns that are in the files themselves."""
        return read(for_read_back(session), self.directory, files, options=_AS_NAMES, schema=schema, read_back=False)

    def is_there(self, beside: Beside) -> bool:
        """Whether every file is there with its size."""
        sizes = self.directory.below(beside.folder).files()
        return all(sizes.get(name.removeprefix(f"{beside.folder}/")) == size for name, size in beside.files)

    def published(self, handle: Handle) -> None:
        """Called when the table has the files: they are no longer orphans."""
        self._forget(handle["folder"], self._prepared(handle["query"], handle["sink"]))

    def published_beside(self, handle: Handle, added: Collection[str]) -> None:
        """Call it before :meth:`published`, with all files that the table was given: those beside an epoch's too."""
        prepared = self._prepared(handle["query"], handle["sink"])
        for folder in {file.partition("/")[0] for file in added}:
            if folder.startswith(f"{handle['folder']}{_BESIDE}"):
                self._forget(folder, prepared)

    def discard_beside(self, handle: Handle, beside: Beside) -> None:
        """Remove files beside an epoch's that the table will not get."""
        self._discard(beside.folder, self._prepared(handle["query"], handle["sink"]))

    def abort(self, transaction: TransactionId) -> None:
        """Remove the files of an attempt that failed."""
        self._discard(self._folder(transaction), self._prepared(transaction.query, transaction.sink))

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Remove the files of drivers before a takeover, except for those of decided transactions."""
        decided = {handle["folder"] for handle in keep}
        for sink in self.directory.below(f"{OWN}/{query}").names():
            prepared = self._prepared(query, sink)
            for folder in prepared.names():
                number = folder.removeprefix(self._beginning(query, sink)).partition("-")[0]
                if number.isdecimal() and int(number) < takeover and folder not in decided:
                    self._discard(folder, prepared)

    def _folder(self, transaction: TransactionId) -> str:
        """The directory of an attempt's files: no two attempts share one, whatever home they are of."""
        return f"{self._beginning(transaction.query, transaction.sink)}{transaction}"

    def _beginning(self, query: str, sink: str) -> str:
        return f"{self.prefix}sparkjet-{query[:8]}-{sink}-"

    def _prepared(self, query: str, sink: str) -> Directory:
        return self.directory.below(f"{OWN}/{query}/{sink}/prepared")

    def _mark(self, folder: str, prepared: Directory) -> None:
        """Before the files: what nothing lists would be left for good."""
        prepared.create()
        prepared.write(folder, b"")

    def _write(
        self, rows: DataFrame, folder: str, options: Mapping[str, str], partition_by: Sequence[str]
    ) -> tuple[int, list[list[Any]]]:
        """Write rows into a directory; how many there were, and the files with their sizes."""
        # In UTC: what is written of a time in a path does not say where.
        options = {**options, "timeZone": "UTC"}
        writer = FileWriter(self.directory.below(folder), "parquet", options, partition_by, defaults=True)
        found = write(rows, writer, SinkError)
        if not found.rows:
            return 0, []
        self.directory.sync(f"{folder}/{name}" for name in found.files)
        return found.rows, [[f"{folder}/{name}", size] for name, size in found.files.items()]

    def _forget(self, folder: str, prepared: Directory) -> None:
        """Its files are the table's."""
        prepared.remove(folder)
        # What a power failure brought back here, a start would take for an orphan: files that the table has.
        with contextlib.suppress(FileNotFoundError):
            prepared.sync((folder,), contents=False)

    def _discard(self, folder: str, prepared: Directory) -> None:
        self.directory.remove(folder)
        prepared.remove(folder)


def told(*handles: Handle) -> dict[str, Any]:
    """A table's information on an epoch, in the form common to all sinks; and which run wrote it.

    Of several that it is given at once: what the last one tells, the rows of all, and which epoch is the first.
    """
    last = handles[-1]
    progress = msgspec.convert(last["progress"], known(WriterProgress))
    found = {**msgspec.to_builtins(progress), "run": last["run"]}
    if len(handles) > 1:
        found |= {"rows": sum(handle["rows"] for handle in handles), "first": handles[0]["epoch"]}
    return found


def alike(handles: Sequence[Handle], *names: str) -> Iterator[list[Handle]]:
    """The handles that follow each other and have the same values: what a table can be given at once.

    One with keys is alone: what it replaces, the table must have before it, from epochs that wait as well.
    """

    def group_of(handle: Handle) -> list[Any]:
        return [handle["folder"] if handle.get("keys") else None, *(handle[name] for name in names)]

    for _, group in groupby(handles, key=group_of):
        yield list(group)


def application(query: str, sink: str) -> str:
    """The name under which a table keeps what is an output's."""
    return f"{BEGINNING}{query}/{sink}"


def values_of(file: str) -> dict[str, str | None]:
    """The partition columns that a path names, with their values; None for null.

    >>> values_of("q/k=a%2Fb/d=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'k': 'a/b', 'd': None}
    """
    found: dict[str, str | None] = {}
    for part in PurePosixPath(file).parent.parts:
        name, is_column, value = part.partition("=")
        if is_column:
            found[unquote(name)] = None if value == _NULL else unquote(value)
    return found
