"""Erased files: directories of the file sink without the rows of a key, for readers with a manifest and without."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.catalyst.physical_plans import own_session
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest
from sparkjet.storage.directory import Replacing
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparkjet.catalyst.sought_rows import Sought
    from sparkjet.sinks.manifest import ManifestEntry
    from sparkjet.sinks.protocol import Handle
    from sparkjet.storage.directory import Directory

_TYPED = ("parquet", "orc")
"""Formats of files that are read as they were written; text would be written anew otherwise than it was."""
_ERASED = "000000-erased-"
"""Of an attempt before all takeovers: the next start of the query removes what a killed one has left."""
_AS_MERGED = {"mergeSchema": "true"}


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
        self._session, self._directory, self._sought = own_session(session), directory, sought
        try:
            self._manifests = Manifest.all_of(directory)
            listed = {file: entry for each in self._manifests for entry in each.entries() for file in entry.files}
            there = [name for name in directory.files() if not name.startswith(("_", "."))]
        except OSError as error:
            message = f'erase: "{directory}" cannot be read: {error.strerror or error}'
            raise AnalysisError(message) from error
        if not self._manifests or not isinstance(directory, Replacing):
            message = f"erase: {directory} has no manifest: no sparkjet query has published an epoch there."
            raise AnalysisError(message)
        self._replace = directory.replace
        self._files = {name: listed.get(name) for name in sorted(there) if PurePosixPath(name).name.startswith("part-")}
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
        for manifest, staging in self._staged():
            for attempt in staging.names():
                handle = handles.get((manifest.sink, attempt))
                is_open = handle is not None and not manifest.contains(handle["epoch"])
                is_other = manifest.query != query and not attempt.startswith(_ERASED)
                if is_open or is_other:
                    message = (
                        f'erase: "{self._directory}" has rows that query {manifest.query} has prepared and not '
                        "published. Start that query, stop it with query.stop(), and erase again."
                    )
                    raise AnalysisError(message)

    def look(self) -> tuple[int | None, int]:
        """The number of rows there are to erase, None if no file has the columns; and of files that have any.

        Raises:
            AnalysisError: A value is none of its column.
        """
        counts = self._counts
        return (None if counts is None else sum(counts.values())), len(counts or ())

    def erase(self, query: str) -> tuple[int | None, int]:
        """Erase them, and what the query, which is fenced, has prepared there and not decided; the same numbers."""
        counts = self._counts
        for manifest, staging in self._staged():
            for attempt in staging.names():
                if manifest.query == query or attempt.startswith(_ERASED):
                    staging.remove(attempt)
        place = f"{MANIFEST_DIRECTORY}/{self._manifests[0].query}/{self._manifests[0].sink}/staging"
        attempt = f"{place}/{_ERASED}{uuid.uuid4().hex[:12]}"
        for number, name in enumerate(counts or ()):
            self._rewrite(name, f"{attempt}/{number}")
        self._directory.remove(attempt)
        return self.look()

    def _staged(self) -> list[tuple[Manifest, Directory]]:
        return [
            (each, self._directory.below(f"{MANIFEST_DIRECTORY}/{each.query}/{each.sink}/staging"))
            for each in self._manifests
        ]

    def _check(self) -> None:
        for name, entry in self._files.items():
            if _format(name, entry) not in _TYPED:
                message = (
                    f'erase: "{self._directory}" has {_format(name, entry)} files, which would be written anew as '
                    "other text than it was. Rewrite them with Spark, or remove them."
                )
                raise AnalysisError(message)
            named = sorted(_partitions(name) & self._sought.values.keys())
            if named:
                message = (
                    f'erase: the directories in "{self._directory}" have the values of {named[0]} in their names, and '
                    f"the manifest has these. Remove {named[0]}=… there while no query writes."
                )
                raise AnalysisError(message)

    @cached_property
    def _counts(self) -> dict[str, int] | None:
        """Rows that are sought, by the file; None if no file has the columns."""
        groups: dict[tuple[bytes, frozenset[str]], list[str]] = {}
        for name, entry in self._files.items():
            told = (_format(name, entry), None if entry is None else (entry.schema, sorted(entry.options.items())))
            groups.setdefault((msgspec.json.encode(told), frozenset(_partitions(name))), []).append(name)
        found: dict[str, int] | None = None
        for names in groups.values():
            entry = self._files[names[0]]
            schema = None if entry is None else StructType.fromJson(entry.schema)
            rows = self._read(names, {} if entry is not None else _AS_MERGED, schema)
            condition = self._condition(rows)
            if condition is not None:
                by_file = rows.where(condition).groupBy(F.input_file_name().alias("file")).count().collect()
                # Names of files are unique: they have epoch and number.
                counts = {PurePosixPath(unquote(row["file"])).name: row["count"] for row in by_file}
                found = (found or {}) | {each: counts[last] for each in names if (last := _last(each)) in counts}
        return found

    def _condition(self, rows: DataFrame) -> Column | None:
        return self._sought.within(self._session, rows.schema, rows.columns, f'"{self._directory}"')

    def _rewrite(self, name: str, place: str) -> None:
        rows = self._read([name], {}, None).drop(*_partitions(name))
        condition = self._condition(rows)
        assert condition is not None  # noqa: S101 - rows were found in this file
        entry = self._files[name]
        options = {} if entry is None else entry.options
        writer = FileWriter(self._directory.below(place), _format(name, entry), options)
        (file,) = write(rows.where(~condition).coalesce(1), writer, SinkError).files
        self._replace(f"{place}/{file}", name)

    def _read(self, names: Sequence[str], options: Mapping[str, str], schema: StructType | None) -> DataFrame:
        entry = self._files[names[0]]
        file_format = _format(names[0], entry)
        given = {**({} if entry is None else entry.options), **options}
        return read(
            self._session,
            self._directory,
            names,
            file_format=file_format,
            options=given,
            schema=schema,
            read_back=False,
        )


def _format(name: str, entry: ManifestEntry | None) -> str:
    return name.rpartition(".")[2] if entry is None else entry.format


def _partitions(name: str) -> set[str]:
    return {level.partition("=")[0] for level in name.split("/")[:-1]}


def _last(name: str) -> str:
    return PurePosixPath(name).name
