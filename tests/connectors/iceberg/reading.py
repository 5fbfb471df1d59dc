"""Reads Iceberg tables by Iceberg's own readers, and their files by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from sparkjet.connectors.iceberg.columns import NAMES
from sparkjet.connectors.iceberg.library import CatalogTable, IcebergTable, PathTable
from sparkjet.connectors.iceberg.version import MAIN, head
from sparkjet.java import java_class, static_method
from sparkjet.storage.posix_directory import PosixDirectory

_ICEBERG = "org.apache.iceberg"


class IcebergReader:
    """The newest version of a table, which may be given by its directory, or by its name in a catalog."""

    def __init__(self, session: SparkSession, place: Path | str | IcebergTable) -> None:
        if isinstance(place, str):
            place = CatalogTable(session, place)
        elif isinstance(place, Path):
            place = PathTable(session, PosixDirectory(place))
        version = place.version()
        assert version is not None
        self._session, self.version = session, version

    def rows(self, branch: str = MAIN) -> list[dict[str, Any]]:
        """All rows of a branch, as Iceberg reads them; what has no type in Python is text."""
        names = [field["name"] for field in self.version.schema["fields"]]
        return [
            {name: _python(record.getField(name)) for name in names}
            for found in self._read(branch)
            for record in each(found)
        ]

    def _read(self, branch: str) -> Iterator[Any]:
        text = self.version.properties.get(NAMES)
        if text is None:
            reading = static_method(self._session, f"{_ICEBERG}.data.IcebergGenerics.read")(self.version.java)
            newest = head(self.version.base, branch)
            yield (reading if newest is None else reading.useSnapshot(newest.snapshotId())).build()
            return
        # That one reads by ids only: here as Iceberg's reader for Spark does.
        names = static_method(self._session, f"{_ICEBERG}.mapping.NameMappingParser.fromJson")(text)
        reader = static_method(self._session, f"{_ICEBERG}.formats.FormatModelRegistry.readBuilder")
        kind = java_class(self._session, "java.lang.Class").forName(
            f"{_ICEBERG}.data.Record",
            True,
            java_class(self._session, "java.lang.Thread").currentThread().getContextClassLoader(),
        )
        parquet_format = java_class(self._session, f"{_ICEBERG}.FileFormat").PARQUET
        for file in self.files():
            place = self.version.java.io().newInputFile(file)
            yield reader(parquet_format, kind, place).project(self.version.java.schema()).withNameMapping(names).build()

    def files(self, column: str = "", word: str = "", value: object = None) -> list[str]:
        """The files, or those that a condition leaves to be read."""
        scan = self.version.java.newScan()
        if column:
            condition = static_method(self._session, f"{_ICEBERG}.expressions.Expressions.{word}")(column, value)
            scan = scan.filter(condition)
        planned = scan.planFiles()
        try:
            return [str(task.file().location()).removeprefix("file:") for task in each(planned)]
        finally:
            planned.close()

    def deletes_nothing(self) -> bool:
        """Whether no rows of its files are deleted."""
        snapshot = self.version.base.currentSnapshot()
        return snapshot is None or not snapshot.deleteManifests(self.version.java.io())

    def table(self) -> pa.Table:
        """The rows in its files, none of which has deleted ones."""
        tables = [parquet.read_table("/" + file.lstrip("/"), partitioning=None) for file in self.files()]
        return pa.concat_tables(tables)


def each(found: Any) -> Iterator[Any]:
    """The elements of a Java iterable."""
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _python(value: Any) -> Any:
    if not hasattr(value, "getClass"):
        return value
    return bytes(value.array()) if "ByteBuffer" in value.getClass().getName() else str(value.toString())
