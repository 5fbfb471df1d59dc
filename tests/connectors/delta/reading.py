"""Reads Delta tables by the readers of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder


def table_at(path: Path) -> pa.Table:
    """The newest version, as delta-rs reads it."""
    # Not to_pyarrow_table(), which cannot read negative decimals in the log.
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return pa.table(found.read_all())


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Its rows."""
    rows: list[dict[str, Any]] = table_at(path).to_pylist()
    return rows


def by_duckdb(path: Path, sql: str) -> list[Any]:
    """DuckDB's answer over the newest version, ``t``, as delta-rs gives it to Arrow; DuckDB leaves out files itself."""
    with duckdb.connect() as database:
        return database.register("t", DeltaTable(path).to_pyarrow_dataset()).sql(sql).fetchall()


def files_of(path: Path, where: pc.Expression) -> list[str]:
    """The files that a condition leaves to be read, by the statistics in the log."""
    return [each.path for each in DeltaTable(path).to_pyarrow_dataset().get_fragments(filter=where)]
