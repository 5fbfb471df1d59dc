"""Characters: whether a database that is not UTF-8 can store those of an epoch, checked before its decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyarrow import parquet

from sparkjet.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkjet.storage.directory import Directory

ALL = frozenset({"UTF8", "SQL_ASCII"})
"""Database encodings that accept any UTF-8."""


def check_characters(connection: psycopg.Connection[Any], entry: Directory, names: Sequence[str]) -> None:
    """Have the server convert every character of an outbox entry, as only the server knows its conversions.

    Runs on the driver, which rereads the files for this, and only if the encoding is not in :data:`ALL`.
    """
    found: dict[int, set[str]] = {}
    for number, text in _texts(entry):
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
            f"postgres: column {names[number]!r} has {refused!r}, which this database cannot store: its encoding is "
            f"{encoding}. Use a database that was created with ENCODING 'UTF8', or replace the character, e.g. with "
            "F.regexp_replace."
        )
        raise SinkError(message)


def _texts(entry: Directory) -> Iterator[tuple[int, str]]:
    for name in sorted(name for name in entry.names() if name.startswith("part-")):
        with entry.open(name) as content, parquet.ParquetFile(content) as file:
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
