"""Characters: whether a database whose encoding is not UTF-8 can hold those of an epoch, asked before its decision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyarrow import parquet

from sparkjet.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = frozenset({"UTF8", "SQL_ASCII"})
"""Encodings of databases that take any UTF-8."""


def check_characters(connection: psycopg.Connection[Any], box: Path, names: Sequence[str]) -> None:
    """Ask the server for every character of an outbox; no table of ours can say what its conversions do.

    Runs on the driver, which reads the files once more for this, and only where :data:`ALL` lacks the encoding.

    Args:
        connection: To the database, in autocommit.
        box: Parquet files as they will be written, their columns in the order of ``names``.
        names: The table's columns, for the error.

    Raises:
        SinkError: Naming the column, a character and the encoding.
    """
    found: dict[int, set[str]] = {}
    for number, text in _texts(box):
        found.setdefault(number, set()).update(text)
    for number, characters in sorted(found.items()):
        refused = "".join(sorted(character for character in characters if not character.isascii()))
        if _holds(connection, refused):
            continue
        while len(refused) > 1:
            half = refused[: len(refused) // 2]
            refused = refused[len(half) :] if _holds(connection, half) else half
        encoding = connection.info.parameter_status("server_encoding")
        message = (
            f"postgres: column {names[number]!r} has {refused!r}, which this database cannot hold: its encoding is "
            f"{encoding}. Use a database that was created with ENCODING 'UTF8', or replace the character, e.g. with "
            "F.regexp_replace."
        )
        raise SinkError(message)


def _texts(box: Path) -> Iterator[tuple[int, str]]:
    for path in sorted(box.glob("part-*")):
        with parquet.ParquetFile(path) as file:
            texts = [n for n, each in enumerate(file.schema_arrow) if pa.types.is_string(each.type)]
            for batch in file.iter_batches(columns=[file.schema_arrow.names[n] for n in texts]):
                for number, column in zip(texts, batch.columns, strict=True):
                    yield number, "".join(column.unique().drop_null().to_pylist())


def _holds(connection: psycopg.Connection[Any], text: str) -> bool:
    try:
        connection.execute("SELECT %s::text", [text])
    except psycopg.errors.UntranslatableCharacter:
        return False
    return True
