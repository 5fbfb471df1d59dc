"""Displacing: an epoch's rows replace older ones, by rewriting what stays of the files that contain those."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, IntegralType, StringType, StructType, TimestampType

from sparkjet.catalyst.columns import quoted
from sparkjet.connectors.delta.kernel import DataFile
from sparkjet.connectors.delta.statistics import Bounds
from sparkjet.errors import SinkError
from sparkjet.java import java_class
from sparkjet.sinks.parquet_footer import ParquetFooter
from sparkjet.sinks.staged_files import values_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparkjet.connectors.delta.kernel import ActiveFile, DeltaTable, Version
    from sparkjet.sinks.protocol import Handle
    from sparkjet.sinks.staged_files import Beside, StagedFiles

_FILE, _PATH, _VALUES, _KEY = "_sparkjet_file", "_sparkjet_path", "_sparkjet_values", "_sparkjet_key_"
_ONE_TEXT = StringType | IntegralType | DateType
_TOGETHER = 64 << 20
"""Bytes of old files that are combined into one: otherwise small ones, one per epoch, would accumulate."""


class Displacing:
    """Determines how an epoch's rows change the files of a table, on the driver; starts Spark jobs.

    Called for each version that the epoch might be added to, it looks only at files that are new to it, and rewrites
    only if others have to go.

    Args:
        session: The user's session.
        table: The table.
        staged: The table's files.
        handle: Handle of the epoch, with the ``keys`` by which its rows replace others.
        options: Options of Spark's writer.
    """

    def __init__(
        self, session: SparkSession, table: DeltaTable, staged: StagedFiles, handle: Handle, options: Mapping[str, str]
    ) -> None:
        self._session, self._table, self._staged, self._handle = session, table, staged, handle
        self._options, self._keys = options, tuple(handle["keys"])
        self._seen: set[str] = set()
        self._matched: set[str] = set()
        self._stays: Beside | None = None
        self._stays_of: frozenset[str] = frozenset()

    def of(self, version: Version) -> tuple[list[ActiveFile], list[DataFile]]:
        """The files that go, and those with what stays of them."""
        active = {file.name: file for file in self._table.files(version)}
        unknown = [file for name, file in active.items() if name not in self._seen]
        self._matched |= self._matching(unknown, version)
        self._seen |= active.keys()
        gone = [active[name] for name in sorted(self._matched & active.keys())]
        names = frozenset(file.name for file in gone)
        if self._stays is not None and (names != self._stays_of or not self._staged.is_there(self._stays)):
            self.discard()
        if gone and self._stays is None:
            self._stays, self._stays_of = self._written(gone, version), names
        files = () if self._stays is None else self._stays.files
        return gone, [DataFile(name, size, values_of(name)) for name, size in files]

    def end(self, added: Collection[str]) -> None:
        """Call it when the table has the epoch, with the files it was given, perhaps by another driver."""
        self._staged.published_beside(self._handle, added)
        if self._stays is not None and not {name for name, _ in self._stays.files} & {*added}:
            self.discard()

    def discard(self) -> None:
        """Remove written files that the table will not get."""
        if self._stays is not None:
            self._staged.discard_beside(self._handle, self._stays)
            self._stays = None

    def _matching(self, files: Sequence[ActiveFile], version: Version) -> set[str]:
        """The names of the files that have a row with one of the keys."""
        near = self._near(files, version)
        if not near:
            return set()
        self._check_here(near)
        directory = self._staged.directory
        rows = self._rows({file.name: file.values for file in near}, version)
        found = rows.join(self._epoch(version), self._same(), "left_semi").select(_FILE).distinct().collect()
        names = {directory.uri(file.name): file.name for file in near}
        return {names[unquote(row[0])] for row in found}

    def _near(self, files: Sequence[ActiveFile], version: Version) -> list[ActiveFile]:
        """The files that may have a row with one of the keys, by their partitions and statistics."""
        schema, by, names = version.schema, version.partition_by, [name for name, _ in self._handle["files"]]
        inside = [key for key in self._keys if key not in by]
        # For other types, a value has several texts.
        outside = [key for key in self._keys if key in by and isinstance(schema[key].dataType, _ONE_TEXT)]

        def partition(values: Mapping[str, str | None]) -> tuple[str | None, ...]:
            # In the log, an empty string is a null.
            return tuple(values.get(key) or None for key in outside)

        own = Bounds.of([ParquetFooter(self._staged.directory, name) for name in names], schema, inside)
        partitions = {partition(values_of(name)) for name in names}
        return [
            file
            for file in files
            if partition(file.values) in partitions and own.may_meet(Bounds.logged(file.statistics, schema, inside))
        ]

    def _written(self, files: Sequence[ActiveFile], version: Version) -> Beside:
        """The remainder of files, rewritten."""
        marked = next((file.name for file in files if file.has_deleted), None)
        if marked is not None:
            message = (
                f"{self._staged.directory} has a row that epoch {self._handle['epoch']} replaces in {marked}, where "
                "others are marked as deleted (a deletion vector), which sparkjet does not read. Have the file "
                "rewritten: REORG TABLE … APPLY (PURGE)."
            )
            raise SinkError(message)
        rows = self._rows({file.name: file.values for file in files}, version)
        self._check_kept(rows, version)
        stays = rows.join(self._epoch(version), self._same(), "left_anti")
        columns = stays.select(*(quoted(name) for name in version.schema.fieldNames()))
        together = columns.coalesce(1 + sum(file.size for file in files) // _TOGETHER)
        return self._staged.write_beside(together, self._handle, self._options, version.partition_by)

    def _check_kept(self, rows: DataFrame, version: Version) -> None:
        """Refuse to replace rows with values in columns that others have added since the epoch was written."""
        given = {field["name"] for field in self._handle["schema"]["fields"]}
        lacking = [name for name in version.schema.fieldNames() if name not in given]
        if not lacking:
            return
        replaced = rows.join(self._epoch(version), self._same(), "left_semi")
        found = replaced.agg(*(F.count(quoted(name)).alias(str(place)) for place, name in enumerate(lacking))).collect()
        lost = [name for name, count in zip(lacking, found[0], strict=True) if count]
        if lost:
            message = (
                f"{self._staged.directory} has the column {lost[0]!r} since epoch {self._handle['epoch']} was written, "
                "with values in rows that the epoch replaces: they would be lost, and it is not added now. Set the "
                f'column to NULL in rows of these keys (UPDATE …), and start again, with withColumn("{lost[0]}", …) '
                "in the result."
            )
            raise SinkError(message)

    def _check_here(self, files: Sequence[ActiveFile]) -> None:
        """Refuse files of another table, as in a shallow clone: the log has their full paths."""
        other = next((file.name for file in files if "://" in file.name or file.name.startswith(("/", "file:"))), None)
        if other is not None:
            message = (
                f"{self._staged.directory} has the file {other} of another table, which sparkjet does not read. Is it "
                "a shallow clone? Copy its rows into a separate table."
            )
            raise SinkError(message)

    def _epoch(self, version: Version) -> DataFrame:
        """The keys of the epoch's rows, under distinct names."""
        rows = self._rows({name: values_of(name) for name, _ in self._handle["files"]}, version)
        return rows.select(*(F.col(quoted(key)).alias(f"{_KEY}{number}") for number, key in enumerate(self._keys)))

    def _same(self) -> Column:
        """Whether a row has the key of another: nulls equal each other, as in groupBy."""
        pairs = [(F.col(quoted(key)), F.col(f"{_KEY}{number}")) for number, key in enumerate(self._keys)]
        return reduce(and_, (old.eqNullSafe(new) for old, new in pairs))

    def _rows(self, files: Mapping[str, Mapping[str, str | None]], version: Version) -> DataFrame:
        """The rows of files by the table's columns, with the name of each row's file as Spark gives it."""
        directory, by = self._staged.directory, version.partition_by
        stored = StructType([field for field in version.schema.fields if field.name not in by])
        read = self._staged.rows(self._session, [*files], stored)
        # By name, it might be a column of the table.
        rows = read.select("*", read.metadataColumn("_metadata").getField("file_path").alias(_FILE))
        if not by:
            return rows
        path = java_class(self._session, "org.apache.hadoop.fs.Path")
        texts = [
            (str(path(directory.uri(name)).toUri().toString()), [values.get(each) for each in by])
            for name, values in files.items()
        ]
        known = rows.sparkSession.createDataFrame(texts, f"{_PATH} string, {_VALUES} array<string>")
        # If a file is not found there, none of its rows may be left out, or have nulls.
        found = F.coalesce(_VALUES, F.raise_error(F.concat(F.lit("no partition is known of "), _FILE)))
        joined = rows.join(F.broadcast(known), F.col(_FILE) == F.col(_PATH), "left")
        typed = {name: _typed(found[number], version.schema[name].dataType) for number, name in enumerate(by)}
        columns = [typed[name].alias(name) if name in typed else F.col(quoted(name)) for name in version.schema.names]
        return joined.select(*columns, _FILE)


def _typed(text: Column, kind: DataType) -> Column:
    """A partition value from its text in the log; times without a zone are in UTC."""
    if isinstance(kind, TimestampType):
        text = F.concat(F.rtrim(text, F.lit("Z")), F.lit("Z"))
    return text if isinstance(kind, StringType) else text.cast(kind)
