"""A look at the newest late rows, if an output for them has written files: read without Spark, on request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sparkjet.query_log import without_users

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Scalar

REASON = "_reason"
"""The column that only late rows, and rows without an event time, have."""
MOST = 20
_KEYS = frozenset({"directory", "epoch", "files", "format"})
_LONGEST = 200


def holds_late_rows(transaction: Mapping[str, Any]) -> bool:
    """Whether a transaction consists of files with such rows."""
    # A user's sink may use these names for something else.
    schema = transaction.get("schema")
    fields = schema.get("fields") if isinstance(schema, dict) and transaction.keys() >= _KEYS else ()
    return isinstance(fields, list) and any(isinstance(each, dict) and each.get("name") == REASON for each in fields)


def newest_rows(transaction: Mapping[str, Any]) -> dict[str, Any]:
    """Some of its rows as text, or their location."""
    directory, kind = str(transaction["directory"]), transaction.get("format")
    place = without_users(directory)
    told: dict[str, Any] = {"epoch": transaction["epoch"], "directory": place, "rows": [], "why": None}
    parts = urlsplit(directory)
    local = Path(unquote(parts.path) if parts.scheme == "file" else directory)
    if kind != "parquet" or parts.scheme not in {"", "file"}:
        return {**told, "why": f"They are {kind} files in {place}: read them with sparkjet.read_files."}
    try:
        from pyarrow import ArrowException  # noqa: PLC0415 - an extra
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        return {**told, "why": f'To look at them here, install {error.name}: pip install "sparkjet[arrow]".'}
    rows: list[dict[str, str]] = []
    try:
        for _, name in transaction["files"]:
            with ParquetFile(local / name) as file:
                for batch in file.iter_batches(MOST):
                    rows += _shown(batch.slice(0, MOST - len(rows)))
                    if len(rows) == MOST:
                        return {**told, "rows": rows}
    except (OSError, ArrowException) as error:
        # Decided and not yet renamed into place, or removed since.
        return {**told, "why": f"{place} cannot be read: {str(error).partition(chr(10))[0]}"}
    return {**told, "rows": rows}


def _shown(rows: RecordBatch) -> list[dict[str, str]]:
    columns = list(zip(rows.schema.names, rows.columns, strict=True))
    return [{name: _text(column[at]) for name, column in columns} for at in range(rows.num_rows)]


def _text(value: Scalar) -> str:
    try:
        return str(value.as_py())[:_LONGEST]
    except (ValueError, OverflowError) as error:
        # A year after 9999, or bytes that are not UTF-8: rows are often late, or in error, because of such a value.
        return f"cannot be shown: {error}"[:_LONGEST]
