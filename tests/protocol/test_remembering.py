"""A checkpoint restored from a backup: the markers detect it, and the way out in the error publishes once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from sparkjet.connectors.postgres.sink import published_after
from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.connectors.postgres.transactions import PostgresTransactions
from sparkjet.sinks.protocol import Handle, TransactionId
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.protocol.checks import check, finish
from tests.protocol.driver import TARGET, Orders

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.crash


def newest(orders: Orders) -> tuple[TransactionId, Handle]:
    """Identity and last handle of the newest record."""
    found = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
    assert found is not None
    record = found[1]
    identity = TransactionId(record.query, "results", record.takeover, record.epoch, 0)
    return identity, record.transactions[-1].handle


def finding(orders: Orders, identity: TransactionId, handle: Handle | None) -> str | None:
    return published_after(orders.dsn, identity, handle, [TARGET])


@pytest.mark.parametrize("way", ["prepared", "outbox"])
def test_going_on_from_a_backup_as_the_error_says_publishes_each_row_once(
    postgres: PostgresServer, orders: Orders, way: str
) -> None:
    orders = replace(orders, way=way, epochs=2)
    finish(orders)
    backup = orders.home.with_name("backup")
    shutil.copytree(orders.home, backup)
    finish(replace(orders, epochs=4))
    identity, handle = newest(orders)
    assert finding(orders, identity, handle) is None
    shutil.rmtree(orders.home)
    backup.rename(orders.home)
    identity, handle = newest(orders)
    said = finding(orders, identity, handle)
    assert said is not None
    assert said.startswith(f'"public"."{MARKERS}" in PostgreSQL says that epoch 4 was published. ')
    assert 'remove the rows written after the backup from "public"."out"' in said
    with psycopg.connect(orders.dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM out WHERE n >= 30")
        connection.execute(said[said.index("BEGIN; ") :].encode())
    assert finding(orders, identity, handle) is None
    # What the backup's record has decided was published, and is still marked so.
    assert PostgresTransactions(orders.dsn).is_published(handle)
    orders = replace(orders, epochs=5)
    finish(orders)
    check(postgres, orders)


def test_other_queries_epochs_and_silent_servers_are_not_findings(orders: Orders) -> None:
    finish(replace(orders, epochs=2))
    identity, handle = newest(orders)
    assert finding(orders, replace(identity, epoch=1), None) is not None
    assert finding(orders, replace(identity, epoch=1, query="other"), handle) is None
    assert finding(orders, replace(identity, epoch=1, sink="other"), handle) is None
    with psycopg.connect(orders.dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE {MARKERS}".encode())
    assert finding(orders, replace(identity, epoch=1), handle) is None
    assert not PostgresTransactions(orders.dsn).is_published(handle)
    assert finding(replace(orders, dsn="host=127.0.0.1 port=1 user=nobody"), identity, handle) is None


@pytest.mark.parametrize("way", ["prepared", "outbox"])
def test_what_is_published_is_known_though_the_box_is_gone(orders: Orders, way: str) -> None:
    orders = replace(orders, way=way, epochs=1)
    finish(orders)
    _, handle = newest(orders)
    transactions = PostgresTransactions(orders.dsn)
    assert transactions.is_published(handle)
    later = {**handle, "epoch": 2, "gid": "another", "slots": [["another", 10]]}
    assert not transactions.is_published(later)
    finish(replace(orders, epochs=2))
    # Its own marker is gone now, but not that of the epoch after it.
    assert transactions.is_published(handle)
