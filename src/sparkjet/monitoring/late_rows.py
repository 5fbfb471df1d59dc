"""A look at the newest late rows, where an output of theirs has written files: read without Spark, on request."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

REASON = "_reason"
"""The column that only late rows, and rows without an event time, have."""
MOST = 20
_LONGEST = 200


def holds_late_rows(transaction: Mapping[str, Any]) -> bool:
    """Whether it is a transaction of files with such rows."""
    schema = transaction.get("schema")
    fields = schema.get("fields", ()) if isinstance(schema, dict) and "files" in transaction else ()
    return any(field.get("name") == REASON for field in fields)


def newest_rows(transaction: Mapping[str, Any]) -> dict[str, Any]:
    """Some of its rows as text, or where they are."""
    place, kind = str(transaction["directory"]), transaction.get("format")
    told: dict[str, Any] = {"epoch": transaction["epoch"], "directory": place, "rows": [], "why": None}
    parts = urlsplit(place)
    local = Path(unquote(parts.path) if parts.scheme == "file" else place)
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
                    rows += (_shown(row) for row in islice(batch.to_pylist(), MOST - len(rows)))
                    if len(rows) == MOST:
                        return {**told, "rows": rows}
    except (OSError, ArrowException, OverflowError) as error:
        # Decided and not yet renamed into place, or removed since; or a year that Python does not have.
        return {**told, "why": f"{place} cannot be read: {str(error).partition(chr(10))[0]}"}
    return {**told, "rows": rows}


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value)[:_LONGEST] for name, value in row.items()}
