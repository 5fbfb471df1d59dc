"""Delta tables by name: where the session's catalog has them, and how it gets a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError, SinkError
from sparkjet.sinks.jars import said
from sparkjet.sinks.table import OPTION, identified, location, provider_in, sql_text
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalog.spark_catalog"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_INSTEAD = 'Give the directory of the table to start("…")'


@dataclass(frozen=True)
class NamedTable:
    """A table of the session's catalog.

    Attributes:
        name: Its name, quoted for SQL.
        location: Its directory: a path or a URI.
        is_known: Whether the catalog has it; one that it lacks is registered once created.
    """

    name: str
    location: str
    is_known: bool

    def register(self, session: SparkSession, uri: str) -> None:
        """Register the table in the catalog, with Delta's connector, unless another process does so first."""
        try:
            session.sql(f"CREATE TABLE IF NOT EXISTS {self.name} USING delta LOCATION {sql_text(uri)}")
        except JAVA_ERRORS as error:
            raise SinkError(f"{OPTION}: {self.name} cannot be registered: {said(error)}") from error


def named_table(name: str, session: SparkSession, path: str | None) -> NamedTable:
    """A table by its name, with or without its database."""
    catalog, identifier = identified(name, session, _refused)
    quoted = str(identifier.quotedString())
    if catalog.tableExists(identifier):
        found = catalog.getTableMetadata(identifier)
        provider = provider_in(found)
        if provider != "delta":
            raise _refused(quoted, f"its format is {provider}")
        place = location(found.location())
        if path is not None:
            raise AnalysisError(f'{OPTION}: {quoted} is in {place}. Leave path="{path}" out.')
        return NamedTable(quoted, place, is_known=True)
    if session.conf.get(_CATALOG, None) != _DELTA_CATALOG:
        message = (
            f"{OPTION}: there is no table {quoted}, and only Delta's connector for Spark can add one to the catalog. "
            f"Set {_CATALOG} to {_DELTA_CATALOG}, with the connector in spark.jars.packages, where there is one for "
            f"this Spark. {_INSTEAD} where there is none."
        )
        raise AnalysisError(message)
    place = path if path is not None else location(catalog.defaultTablePath(identifier))
    return NamedTable(quoted, place, is_known=False)


def _refused(table: str, why: str) -> AnalysisError:
    return AnalysisError(f"{OPTION}: {table} is not a Delta table of the session's catalog: {why}. {_INSTEAD}.")
