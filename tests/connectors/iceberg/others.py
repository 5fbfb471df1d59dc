"""Reads Iceberg tables by pyiceberg, and by DuckDB through it: they share no code with the library that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
from pyiceberg.table import StaticTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.connectors.iceberg.version import Version


def by_pyiceberg(version: Version, where: str = "", **settings: str) -> list[dict[str, Any]]:
    """The rows of a version.

    Args:
        version: The version.
        where: A condition.
        settings: Of the store that it is in.
    """
    table = StaticTable.from_metadata(str(version.base.metadataFileLocation()), _dotted(settings))
    scan = table.scan(row_filter=where) if where else table.scan()
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return found


def by_duckdb(version: Version, sql: str) -> list[Any]:
    """DuckDB's answer over a version, ``t``, as pyiceberg gives it to Arrow."""
    scan = StaticTable.from_metadata(str(version.base.metadataFileLocation())).scan()
    with duckdb.connect() as database:
        return scan.to_duckdb("t", database).sql(sql).fetchall()


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
