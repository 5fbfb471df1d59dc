"""Erased files: directories of the file sink without the rows of a key, for readers with a manifest and without."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.catalyst.physical_plans import own_session
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.jars import said
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest
from sparkjet.sinks.spark_list import LIST
from sparkjet.storage.directory import Replacing
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparkjet.catalyst.sought_rows import Sought
    from sparkjet.sinks.manifest import ManifestEntry
    from sparkjet.sinks.protocol import Handle
    from sparkjet.storage.directory import Directory

_TYPED = ("parquet", "orc")
"""Formats of files that are read as they were written; rewritten text would not be what it was."""
_ERASED = "000000-erased-"
"""An attempt before all takeovers: the next start of the query removes what a killed one has left."""
_WHOLE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""A row that was skipped would be lost."""
_AS_MERGED = {"mergeSchema": "true", **_WHOLE}
_CASE, _TIMES = "spark.sql.caseSensitive", "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class FoundRows:
    """The rows that were sought in a directory.

    Attributes:
        rows: Their number; None if no file has the columns.
        files: The number of files that have any.
        lacking: The number of files without the columns.
    """

    rows: int | None
    files: int
    lacking: int = 0


class FilesErasure:
    """Erases rows from a directory that ``format("files")``, late rows or dead letters were written to.

    A file keeps its name, and has another content from one moment to the next; one whose rows all go is empty. So the
    manifest stays as it is, and readers find each row that stays once, whenever they read. Files whose epochs have left
    the manifest are looked through as well.

    Args:
        session: Reads and writes the files.
        directory: The directory.
        sought: The rows.

    Raises:
        AnalysisError: No query has written there; or there are files that cannot be rewritten.
    """

    def __init__(self, session: SparkSession, directory: Directory, sought: Sought) -> None:
        self._asked, self._session = session, own_session(session)
        # Files may have columns that differ only in this.
        self._session.conf.set(_CASE, "true")
        if session.conf.get(_TIMES) == "TIMESTAMP_MILLIS":
            # Of the session that erases: times of others, which another one has written, would be cut off.
            self._session.conf.set(_TIMES, "TIMESTAMP_MICROS")
        self._directory, self._sought = directory, sought
        try:
            manifests = Manifest.all_of(directory)
            listed = {file: entry for each in manifests for entry in each.entries() for file in entry.files}
            self._there = directory.files()
            self._files = {name: listed.get(name) for name in sorted(self._there) if _has_rows(name)}
            # A sink creates its directory with the first start.
            is_ours = bool(self._writers()) or (not self._files and directory.exists(MANIFEST_DIRECTORY))
        except OSError as error:
            raise AnalysisError(f'erase: "{directory}" cannot be read: {error.strerror or error}') from error
        if not is_ours or not isinstance(directory, Replacing):
            raise AnalysisError(f"erase: {directory} has no manifest: no sparkjet query has published an epoch there.")
        self._replace = directory.replace
        self._lacking: set[str] = set()
        self._check()

    def check_published(self, query: str, decided: Sequence[Handle]) -> None:
        """Refuse rows of epochs that are decided and not published, or of another query that may be.

        Args:
            query: The query whose home is known.
            decided: The handles of its newest record.

        Raises:
            AnalysisError: There are some.
        """
        handles = {(each["sink"], each["staging"]): each for each in decided if "staging" in each}
        for writer, sink, attempt in self._staged():
            handle = handles.get((sink, attempt))
            is_open = handle is not None and not Manifest(self._directory, writer, sink).contains(handle["epoch"])
            is_other = writer != query and not attempt.startswith(_ERASED)
            if is_open or is_other:
                message = (
                    f'erase: "{self._directory}" has rows that query {writer} has prepared and not '
                    "published. Start that query, stop it with query.stop(), and erase again."
                )
                raise AnalysisError(message)

    def look(self) -> FoundRows:
        """The files to erase.

        Raises:
            AnalysisError: A value is none of its column, or a file cannot be read.
        """
        counts = self._counts
        rows = None if self._files and len(self._lacking) == len(self._files) else sum(counts.values())
        return FoundRows(rows, len(counts), len(self._lacking))

    def erase(self, query: str, check: Callable[[], None] = lambda: None) -> FoundRows:
        """Erase it, and what the query, which is fenced, has prepared there and not decided; says the same.

        Of two erasures at once the one that has come first must not replace a file by what the other one has not read.
        The one that comes later removes what the first one has written, and whatever that writes from then on,
        ``check`` refuses.

        Args:
            query: The query.
            check: Raises if another erasure has come; called first, before each file is replaced, and last.
        """
        found = self.look()
        check()
        for writer, sink, attempt in self._staged():
            if writer == query or attempt.startswith(_ERASED):
                self._staging(writer, sink).remove(attempt)
        if self._counts:
            writer, sink = self._writers()[0]
            attempt = f"{MANIFEST_DIRECTORY}/{writer}/{sink}/staging/{_ERASED}{uuid.uuid4().hex[:12]}"
            for number, name in enumerate(self._counts):
                self._rewrite(name, f"{attempt}/{number}", check)
            self._directory.remove(attempt)
        check()
        return found

    def _writers(self) -> list[tuple[str, str]]:
        """Queries and their sinks, whether or not these have published any epoch."""
        top = self._directory.below(MANIFEST_DIRECTORY)
        return [(query, sink) for query in sorted(top.names()) for sink in sorted(top.below(query).names())]

    def _staging(self, query: str, sink: str) -> Directory:
        return self._directory.below(f"{MANIFEST_DIRECTORY}/{query}/{sink}/staging")

    def _staged(self) -> list[tuple[str, str, str]]:
        return [(*each, attempt) for each in self._writers() for attempt in self._staging(*each).names()]

    def _check(self) -> None:
        if self._directory.exists(LIST):
            # It names their sizes as well, with which Spark would read the new ones.
            message = (
                f'erase: readers of "{self._directory}" follow the list of its files in {LIST}. Copy its rows to '
                "another directory, as a batch of Spark's, and leave those out."
            )
            raise AnalysisError(message)
        for name, entry in self._files.items():
            if _format(name, entry) not in _TYPED:
                message = (
                    f'erase: "{self._directory}" has {_format(name, entry)} files, which would be rewritten as '
                    "other text than it was. Rewrite them with Spark, or remove them."
                )
                raise AnalysisError(message)
        named = self._sought.named(self._asked, sorted({each for name in self._files for each in _partitions(name)}))
        if named:
            message = (
                f'erase: the directories in "{self._directory}" have the values of {named[0]} in their names, and '
                f"the manifest has these. Remove {named[0]}=… there while no query writes."
            )
            raise AnalysisError(message)

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Rows that are sought, by the file; only of files that have any."""
        groups: dict[tuple[bytes, frozenset[str]], list[str]] = {}
        for name, entry in self._files.items():
            told = (_format(name, entry), None if entry is None else (entry.schema, sorted(entry.options.items())))
            groups.setdefault((msgspec.json.encode(told), frozenset(_partitions(name))), []).append(name)
        found: dict[str, int] = {}
        for names in groups.values():
            try:
                found |= self._counted(names)
            except (OSError, *JAVA_ERRORS) as error:
                why = said(error).strip(" .")
                message = f'erase: "{self._directory}" cannot be read: {why}. Restore the file, or remove it.'
                raise AnalysisError(message) from error
        return found

    def _counted(self, names: Sequence[str]) -> dict[str, int]:
        try:
            rows = self._read(names)
        except JAVA_ERRORS:
            if len(names) == 1:
                raise
            # Files that are no longer in the manifest may have the same column with several types.
            half = len(names) // 2
            return self._counted(names[:half]) | self._counted(names[half:])
        condition = self._condition(rows)
        if condition is None:
            self._lacking.update(names)
            return {}
        by_file = rows.where(condition).groupBy(F.input_file_name().alias("file")).count().collect()
        known = {*names}
        return {_named(unquote(row["file"]), known): row["count"] for row in by_file}

    def _condition(self, rows: DataFrame) -> Column | None:
        return self._sought.within(self._asked, rows.schema, rows.columns, f'"{self._directory}"')

    def _rewrite(self, name: str, place: str, check: Callable[[], None]) -> None:
        rows = self._read([name]).drop(*_partitions(name))
        condition = self._condition(rows)
        assert condition is not None  # noqa: S101 - rows were found in this file
        entry = self._files[name]
        # All rows in one file, which has one name.
        options = {**({} if entry is None else entry.options), "maxRecordsPerFile": "0"}
        writer = FileWriter(self._directory.below(place), _format(name, entry), options)
        (file,) = write(rows.where(~condition).coalesce(1), writer, SinkError).files
        folder, _, last = name.rpartition("/")
        checksums = f"{folder}/.{last}.crc".removeprefix("/")
        check()
        if checksums in self._there:
            # Of a file that Spark has written by itself: readers would find that it does not have these.
            self._directory.remove_files([checksums])
        try:
            self._replace(f"{place}/{file}", name)
        except FileNotFoundError:
            # Removed by the other one?
            check()
            raise

    def _read(self, names: Sequence[str]) -> DataFrame:
        entry = self._files[names[0]]
        return read(
            self._session,
            self._directory,
            names,
            file_format=_format(names[0], entry),
            options=_AS_MERGED if entry is None else {**entry.options, **_WHOLE},
            # A copy: Spark adds names of collations to the object that it is given.
            schema=None if entry is None else StructType.fromJson(deepcopy(entry.schema)),
            read_back=False,
        )


def _has_rows(name: str) -> bool:
    """Whether Spark's readers of the directory find the file."""
    *levels, last = name.split("/")
    return last.startswith("part-") and not any(_is_hidden(level) for level in levels)


def _is_hidden(level: str) -> bool:
    return level.startswith(".") or (level.startswith("_") and "=" not in level)


def _format(name: str, entry: ManifestEntry | None) -> str:
    return name.rpartition(".")[2] if entry is None else entry.format


def _partitions(name: str) -> list[str]:
    """The columns that are directories; a directory without a value is none, whatever its name."""
    return [unquote(level.partition("=")[0]) for level in name.split("/")[:-1] if "=" in level]


def _named(path: str, names: Collection[str]) -> str:
    """The file of a path: as Spark writes partitions, several may have the same last name."""
    levels = path.split("/")
    return next(name for first in range(len(levels)) if (name := "/".join(levels[first:])) in names)
