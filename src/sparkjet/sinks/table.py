"""The table sink: a table of files in Spark's catalog, written in the way the files sink writes a directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.errors import ParseException, PySparkException
from pyspark.sql.types import StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.expressions import column_of
from sparkjet.catalyst.logical_plans import listed
from sparkjet.errors import AnalysisError, RefusedRowsError
from sparkjet.java import static_method
from sparkjet.sinks.file_formats import FORMATS
from sparkjet.sinks.files import FilesSink
from sparkjet.storage.collations import has_collations
from sparkjet.storage.schemes import directory_at, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle, TransactionId

OPTION = "toTable"
"""The name of the sink's directory in messages."""
_LENGTHS = "org.apache.spark.sql.catalyst.util.CharVarcharUtils"
_PATTERN = re.compile(r"[][{}*?\\]")
_TOO_LONG = re.compile(r"\[EXCEED_LIMIT_LENGTH\] .*")
_NO_VALUE, _NULL = "__HIVE_DEFAULT_PARTITION__", "NULL"
_SESSION_CATALOG = "spark_catalog"
_DATABASE_AND_TABLE = 2


@dataclass
class TableSink(FilesSink):
    """Appends to a table, whose readers see complete files, and each row once.

    Args:
        table: Name of the table, quoted for SQL.
        session: The user's session.
        columns: The table's columns, with their types; None until there is a table.
        located: Whether the user has chosen the directory of a new table.
        lengths: The schema of the table with the lengths that it declares (``char(n)``), None if it declares none.
    """

    table: str = field(kw_only=True)
    session: SparkSession = field(kw_only=True)
    columns: Mapping[str, str] | None = field(kw_only=True)
    located: bool = field(kw_only=True)
    lengths: Any = field(default=None, kw_only=True)

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        super().check(schema)
        pattern = _PATTERN.search(self.directory.uri())
        if pattern is not None and self.columns is None and not self.partition_by:
            message = (
                f'{OPTION}: Spark takes "{pattern[0]}" in the location {self.directory} of a table for a pattern. Give '
                "another path."
            )
            raise AnalysisError(message)
        stored = StructType([each for each in schema.fields if each.name not in self.partition_by])
        if self.file_format == "orc" and has_collations(stored):
            message = (
                f"{OPTION}: Spark cannot read a column of ORC that has a collation, and the rows have "
                f'{_described(_types(stored))}. Cast it to string, or create the table with format("parquet").'
            )
            raise AnalysisError(message)
        found = _types(schema)
        if self.columns is None:
            self._schema = schema
        elif found != self.columns:
            message = (
                f"{OPTION}: the table {self.table} has the columns {_described(self.columns)}, the rows have "
                f"{_described(found)}. Select the columns of the table, with its types."
            )
            raise AnalysisError(message)

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the table."""
        if self.columns is None:
            # Before anything is in its directory, which must be empty.
            self.session.sql(self._definition())
            self.columns = _types(self._schema)
        super().create()

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; formats without names have the columns in the table's order."""
        try:
            return super().prepare(self._of_lengths(rows.select(*map(quoted, self.columns or ()))), transaction)
        except PySparkException as error:
            found = _TOO_LONG.search(str(error))
            if found is None:
                raise
            message = f"{OPTION}: {self.table} does not take a row: {found[0]} Shorten it, e.g. with substr(…)."
            raise RefusedRowsError(message) from error

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        super().commit(handle, between)
        self._register({Path(published).parent for _, published in handle["files"]} - {Path()})
        # The session remembers which files a table has.
        self.session.catalog.refreshTable(self.table)

    def _of_lengths(self, rows: DataFrame) -> DataFrame:
        """The rows as stored by an ``INSERT``: ``char`` is padded, and an overlong value fails the epoch."""
        if self.lengths is None:
            return rows
        checked = static_method(self.session, f"{_LENGTHS}.stringLengthCheck")
        output = rows._jdf.queryExecution().analyzed().output()
        columns = (
            column_of(checked(output.apply(number), self.lengths.apply(number).dataType()), self.session).alias(name)
            for number, name in enumerate(rows.columns)
        )
        return rows.select(*columns)

    def _register(self, directories: Collection[Path]) -> None:
        """Register the partitions in a catalog that keeps a list of them."""
        catalog, identifier = identified(self.table, self.session)
        if directories and catalog.getTableMetadata(identifier).tracksPartitionsInCatalog():
            partitions = " ".join(f"PARTITION ({self._values(each)})" for each in sorted(directories))
            self.session.sql(f"ALTER TABLE {self.table} ADD IF NOT EXISTS {partitions}")

    def _values(self, directory: Path) -> str:
        utils: Any = self.session._jvm
        unescape = utils.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.unescapePathName
        pairs = (level.split("=", 1) for level in directory.parts)
        texts = {unescape(name): _NULL if value == _NO_VALUE else sql_text(unescape(value)) for name, value in pairs}
        return ", ".join(f"{quoted(name)} = {text}" for name, text in texts.items())

    def _definition(self) -> str:
        empty = self.session.createDataFrame([], self._schema)
        options = ", ".join(f"{sql_text(name)} {sql_text(value)}" for name, value in self.options.items())
        parts = [
            f"CREATE TABLE IF NOT EXISTS {self.table} ({empty._jdf.schema().asNullable().toDDL()})",
            f"USING {self.file_format}",
            f"OPTIONS ({options})" if options else "",
            f"PARTITIONED BY ({', '.join(map(quoted, self.partition_by))})" if self.partition_by else "",
            f"LOCATION {sql_text(self.directory.uri())}" if self.located else "",
        ]
        return " ".join(filter(None, parts))


def table_sink(
    name: str,
    session: SparkSession,
    file_format: str | None,
    partition_by: Sequence[str],
    options: Mapping[str, str],
    path: str | None,
    **settings: Any,
) -> TableSink:
    """The sink of a table, which is created at the start if there is none."""
    catalog, identifier = identified(name, session)
    table = str(identifier.quotedString())
    at = partial(directory_at, option=OPTION, session=lambda: session)
    settings |= {"option": OPTION, "table": table, "session": session, "at": at}
    if not catalog.tableExists(identifier):
        place = at(path if path is not None else location(catalog.defaultTablePath(identifier)))
        new = (place, file_format or "parquet", tuple(partition_by), options)
        return TableSink(*new, columns=None, located=path is not None, **settings)
    found = catalog.getTableMetadata(identifier)
    provider = provider_in(found)
    partitions = tuple(listed(found.partitionColumnNames()))
    if provider not in FORMATS:
        raise _refused(table, f"its format is {provider}")
    place = at(location(found.location()))
    for option, given, actual in (
        ("format", file_format, provider),
        ("partitionBy", ", ".join(partition_by), ", ".join(partitions)),
        ("path", path and str(at(path)), str(place)),
    ):
        if given and given != actual:
            raise AnalysisError(f'{OPTION}: {option} is "{given}", but {table} has "{actual}". Leave the option out.')
    properties = found.storage().properties()
    options = {str(name): str(properties.apply(name)) for name in listed(properties.keys().toSeq())} | {**options}
    columns = _types(session.table(table).schema)
    declared = static_method(session, f"{_LENGTHS}.getRawSchema")(found.schema())
    # Like an INSERT, which then neither pads nor checks.
    without = str(session.conf.get("spark.sql.legacy.charVarcharAsString")) == "true"
    has_lengths = not without and static_method(session, f"{_LENGTHS}.hasCharVarchar")(declared)
    return TableSink(
        place,
        provider,
        partitions,
        options,
        columns=columns,
        located=False,
        lengths=declared if has_lengths else None,
        buckets=found.bucketSpec(),
        **settings,
    )


def provider_of(name: str, session: SparkSession) -> str | None:
    """The format of a table in the session's catalog, None if there is no such table."""
    catalog, identifier = identified(name, session)
    return provider_in(catalog.getTableMetadata(identifier)) if catalog.tableExists(identifier) else None


def provider_in(found: Any) -> str:
    """The format of a table, as the catalog describes it."""
    return str(found.provider().get()).lower() if found.provider().isDefined() else "a view"


def location(uri: Any) -> str:
    """A directory from the catalog, as a user would write it: Hadoop does not decode %20; we do, only in ``file:``."""
    text = str(uri)
    return text if scheme_of(text) == "file" else unquote(text)


def identified(
    name: str, session: SparkSession, refused: Callable[[str, str], AnalysisError] | None = None
) -> tuple[Any, Any]:
    """The session's own catalog, and the full name of a table in it."""
    refused = refused or _refused
    state: Any = session._jsparkSession.sessionState()
    given: object = name
    if not isinstance(given, str):
        raise AnalysisError(f"{OPTION}: {given!r} is not the name of a table.")
    try:
        parts = [str(part) for part in listed(state.sqlParser().parseMultipartIdentifier(name))]
    except ParseException as error:
        raise AnalysisError(f"{OPTION}: {name!r} is not the name of a table.") from error
    owner = parts.pop(0) if len(parts) > _DATABASE_AND_TABLE else session.catalog.currentCatalog()
    if owner != _SESSION_CATALOG or len(parts) > _DATABASE_AND_TABLE:
        raise refused(name, f"it belongs to the catalog {owner!r}")
    identifier = state.sqlParser().parseTableIdentifier(".".join(map(quoted, parts)))
    if state.catalog().isTempView(identifier):
        raise refused(name, "it is a temporary view")
    return state.catalog(), state.catalog().qualifyIdentifier(identifier)


def _refused(table: str, why: str) -> AnalysisError:
    return AnalysisError(
        f"{OPTION}: {table} is not a table of plain files: {why}. Append to it with rows.writeTo(…).append() in "
        "foreachBatch(…), which is at-least-once."
    )


def _types(schema: StructType) -> dict[str, str]:
    return {each.name: each.dataType.simpleString() for each in schema.fields}


def _described(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def sql_text(value: str) -> str:
    """A SQL literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
