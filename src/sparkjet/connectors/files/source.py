"""The data source ``sparkjet-files``: whole epochs of a directory, with the watermarks of who writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sparkjet.connectors.files.options import MAX_EPOCHS, PATH, SOURCE_NAME, SOURCE_OPTIONS
from sparkjet.errors import AnalysisError, SourceError
from sparkjet.options import Options
from sparkjet.sinks.manifest import Manifest, ManifestEntry
from sparkjet.sources.carrying import CarryingOffset
from sparkjet.spark_line import arrow_schema
from sparkjet.time import MIN
from sparkjet.workers import QuickReader

_NULL = "__HIVE_DEFAULT_PARTITION__"
_PARQUET = "parquet"


@dataclass(frozen=True)
class File:
    """A file of an epoch, and the values of the columns that are its directories."""

    path: str
    values: Mapping[str, str | None]


class FilesDataSource(DataSource):
    """A directory of the file sink; see docs/guide/files.md."""

    @classmethod
    def name(cls) -> str:
        """The name in ``readStream.format(…)``."""
        return SOURCE_NAME

    @cached_property
    def path(self) -> Path:
        """The directory; options are checked here, when the user calls ``load()``."""
        options = Options(dict(self.options))
        options.only(SOURCE_OPTIONS, SOURCE_NAME)
        given = options[PATH]
        if given is None:
            raise AnalysisError(f'option: format("{SOURCE_NAME}") needs a directory: load("…").')
        path = Path(given.removeprefix("file://"))
        if "://" in given.removeprefix("file://") or not path.is_dir():
            raise AnalysisError(f"path: {given} is not a directory of this machine that format(files) writes into.")
        return path

    def schema(self) -> StructType:
        """The columns of the newest epoch."""
        newest = [entry for manifest in Manifest.all_of(self.path) if (entry := manifest.last()) is not None]
        if not newest:
            message = (
                f"path: no query has published an epoch in {self.path} yet, so its columns are not known: start that "
                "query first, or say which they are with schema(…)."
            )
            raise AnalysisError(message)
        return StructType.fromJson(max(newest, key=lambda entry: entry.committed or 0).schema)

    def streamReader(self, schema: StructType) -> FilesStreamReader:
        """A reader of the directory."""
        return FilesStreamReader(self.path, schema, Options(dict(self.options))[MAX_EPOCHS])


class FilesStreamReader(QuickReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of whole epochs in a Python process of the driver, and reads their files in the executors.

    An offset has the newest epoch of each writer, by its query and output, and the watermark that came with it: see
    :class:`~sparkjet.sources.carrying.CarryingOffset`.

    Args:
        path: The directory.
        schema: The columns.
        limit: The option ``maxEpochsPerTrigger``.
    """

    def __init__(self, path: Path, schema: StructType, limit: int | None) -> None:
        self._path, self._schema, self._limit = path, schema, limit
        self._target: dict[tuple[str, str], int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before the oldest epoch that the manifest lists, of writers that come later too."""
        return _offset({}, {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxEpochsPerTrigger``."""
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the newest epochs of now."""
        self._target = {each: manifest.newest() or 0 for each, manifest in self._manifests().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends, and how far event time has come there."""
        epochs, watermarks = _epochs(start), _watermarks(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for writer, manifest in self._manifests().items():
            entries = self._entries(manifest, epochs.get(writer))
            if self._target is not None:
                entries = [entry for entry in entries if entry.epoch <= self._target.get(writer, -1)]
            for entry in entries[:most]:
                epochs[writer], watermarks[writer] = entry.epoch, (entry.progress or {}).get("watermark")
            # One that has published nothing must be waited for.
            epochs.setdefault(writer, 0)
        return _offset(epochs, watermarks)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The newest epoch of each writer."""
        return _offset({each: manifest.newest() or 0 for each, manifest in self._manifests().items()}, {})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A task for every file of the batch's epochs."""
        begun, until = _epochs(start), _epochs(end)
        files: list[File] = []
        for writer, manifest in self._manifests().items():
            for entry in self._entries(manifest, begun.get(writer)):
                if entry.epoch <= until.get(writer, -1):
                    files += [File(str(self._path / name), _values(name)) for name in entry.files]
        return [InputPartition(each) for each in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the rows of a file."""
        wanted: File = partition.value
        columns = arrow_schema(self._schema)
        try:
            opened = parquet.ParquetFile(wanted.path, coerce_int96_timestamp_unit="us")
        except FileNotFoundError as error:
            message = (
                f"{SOURCE_NAME}: {wanted.path} is in the manifest, but is missing. Restore the file. With the option "
                "retention, old epochs leave the manifest before their files are deleted."
            )
            raise SourceError(message) from error
        with opened as file:
            there = set(file.schema_arrow.names)
            for batch in file.iter_batches(columns=[each.name for each in columns if each.name in there]):
                arrays = [_array(batch, each, wanted.values) for each in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)

    def _manifests(self) -> dict[tuple[str, str], Manifest]:
        return {(each.query, each.sink): each for each in Manifest.all_of(self._path)}

    def _entries(self, manifest: Manifest, after: int | None) -> list[ManifestEntry]:
        """The entries published after an epoch, oldest first; None before the first."""
        if after is not None and manifest.floor > after:
            message = (
                f"{SOURCE_NAME}: {self._path}: epochs {after + 1} to {manifest.floor} of query {manifest.query} have "
                "left the manifest before they were read (the writer's option retention). Nothing was skipped. Give it "
                "more, or start from scratch with another checkpointLocation."
            )
            raise SourceError(message)
        found = manifest.entries(after=-1 if after is None else after)
        for entry in found:
            if entry.files and entry.format != _PARQUET:
                message = (
                    f"{SOURCE_NAME}: epoch {entry.epoch} in {self._path} is {entry.format}; only Parquet can be read."
                )
                raise SourceError(message)
        return found


def _array(batch: pa.RecordBatch, column: pa.Field, values: Mapping[str, str | None]) -> pa.Array:
    """A column of a file as it is wanted: from its directories, or null where its epoch did not have it."""
    if column.name in batch.schema.names:
        found = batch.column(column.name)
        return found if found.type == column.type else found.cast(column.type)
    text = pa.array([values.get(column.name)] * batch.num_rows, pa.string())
    return text.cast(column.type) if column.name in values else pa.nulls(batch.num_rows, column.type)


def _values(name: str) -> dict[str, str | None]:
    levels = (level.partition("=") for level in name.split("/")[:-1])
    return {unquote(column): None if value == _NULL else unquote(value) for column, _, value in levels}


def _epochs(offset: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    return {(query, output): epoch for query, each in offset["offsets"].items() for output, epoch in each.items()}


def _watermarks(offset: Mapping[str, Any]) -> dict[tuple[str, str], int | None]:
    return {(query, output): mark for query, each in offset["watermarks"].items() for output, mark in each.items()}


def _offset(epochs: Mapping[tuple[str, str], int], watermarks: Mapping[tuple[str, str], int | None]) -> dict[str, Any]:
    """An offset in the one form that it has: Spark compares text."""
    known = {writer: mark for writer, mark in watermarks.items() if mark != MIN}
    carrying = CarryingOffset(SOURCE_NAME, _tree(epochs), _tree(known))
    return {"source": carrying.source, "offsets": carrying.offsets, "watermarks": carrying.watermarks}


def _tree(values: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (query, output), value in sorted(values.items()):
        tree.setdefault(query, {})[output] = value
    return tree
