"""Text arrives unchanged, whatever encoding the database, the environment or the dsn sets."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sparkjet.connectors.postgres.copying import CopyError
from sparkjet.connectors.postgres.progress import told_in
from sparkjet.connectors.postgres.target import Target
from sparkjet.connectors.postgres.transactions import PostgresTransactions, outbox_handle
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import TransactionId
from sparkjet.time import WriterProgress
from tests.protocol.rows import batch

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

APPENDED = Target("public", "größe", ("k", "länge"))
UPSERTED = replace(APPENDED, keys=("k",))
QUERY = "00000000-1111-2222-3333-444444444444"
OFFSET = '{"größe/ц/😀":1}'
TOLD = WriterProgress(query=QUERY, output="results", epoch=1, watermark=5, offsets={"0": OFFSET})
"""Topics and files may have names that the database could not store."""
TRANSACTION = TransactionId(QUERY, "results", 0, 1, 0, progress=TOLD)
ENCODINGS = {"UTF8": "é€ц😀", "LATIN1": "éÿß", "WIN1252": "é€“", "EUC_JP": "日本ц", "SQL_ASCII": "é€ц😀"}
"""Text that a database can store, by its encoding."""
WAYS = {"prepared": APPENDED, "outbox": APPENDED, "upsert": UPSERTED}


def database(server: PostgresServer, encoding: str) -> str:
    dsn = server.database(f"t{uuid.uuid4().hex}", encoding)
    with psycopg.connect(dsn, autocommit=True, client_encoding="UTF8") as connection:
        connection.execute('CREATE TABLE "größe" (k text PRIMARY KEY, "länge" int)')
        connection.execute(APPENDED.create_markers())
    return dsn


def publish(dsn: str, way: str, text: str) -> None:
    transactions, rows, target = PostgresTransactions(dsn), batch((text, 1)), WAYS[way]
    if way == "prepared":
        slot = transactions.writer(target, TRANSACTION).write("0-0", rows)
        assert slot is not None
        handle = transactions.fix(target, TRANSACTION, [slot])
        assert handle is not None
        transactions.commit(handle, lambda: None)
    else:
        transactions.publish(outbox_handle(TRANSACTION, target), rows)


def stored(server: PostgresServer, dsn: str, encoding: str) -> list[str]:
    """The stored text, fetched as hex digits, which no conversion can change."""
    if encoding == "SQL_ASCII":
        query = "SELECT encode(textsend(k), 'hex') FROM \"größe\""
    else:
        query = "SELECT encode(convert_to(k, 'UTF8'), 'hex') FROM \"größe\""
    return [bytes.fromhex(text).decode() for (text,) in server.psql(make_conninfo(dsn, client_encoding="UTF8"), query)]


@pytest.mark.parametrize(
    ("encoding", "way"),
    [
        *(("LATIN1", way) for way in WAYS),
        ("WIN1252", "outbox"),
        ("EUC_JP", "prepared"),
        ("SQL_ASCII", "upsert"),
        ("UTF8", "outbox"),
    ],
)
def test_text_arrives_as_it_was(postgres: PostgresServer, encoding: str, way: str) -> None:
    dsn = database(postgres, encoding)
    publish(dsn, way, ENCODINGS[encoding])
    assert stored(postgres, dsn, encoding) == [ENCODINGS[encoding]]
    (told,) = told_in(dsn, '"größe"')
    assert json.loads(told["offsets"]["0"]) == json.loads(OFFSET)


@pytest.mark.parametrize(
    ("asked", "way"),
    [("environment", "prepared"), ("environment", "outbox"), ("dsn", "upsert"), ("database", "prepared")],
)
def test_no_setting_changes_how_bytes_are_read(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, asked: str, way: str
) -> None:
    dsn = database(postgres, "UTF8")
    if asked == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    elif asked == "dsn":
        dsn = make_conninfo(dsn, client_encoding="WIN1252")
    else:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET client_encoding = LATIN1'.encode())
    publish(dsn, way, "é€")
    assert stored(postgres, dsn, "UTF8") == ["é€"]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_database_cannot_hold_is_refused_with_its_encoding(postgres: PostgresServer, way: str) -> None:
    dsn = database(postgres, "LATIN1")
    with pytest.raises((CopyError, SinkError), match=r"The encoding of this database is LATIN1\. Use a database"):
        publish(dsn, way, "aц")
    assert stored(postgres, dsn, "LATIN1") == []
    with pytest.raises((CopyError, SinkError), match=r"cannot store the character NUL or invalid UTF-8 in text"):
        publish(dsn, way, "a\0")
