"""Checks once drivers without Spark have ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkjet.connectors.postgres.target import MARKERS
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.protocol.driver import PATIENT, Orders
from tests.protocol.processes import Process

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer


def finish(orders: Orders) -> None:
    """Restart and run to the end."""
    with Process(replace(orders, stop_at=None, repeats_tasks=False, late_task=False, patience=PATIENT)) as successor:
        assert successor.ended() is None


def check(postgres: PostgresServer, orders: Orders) -> None:
    """Each input once, nothing prepared, markers of one epoch only, nothing unsettled; read by psql."""
    seen = [int(n) for (n,) in postgres.psql(orders.dsn, "SELECT n FROM out ORDER BY n")]
    epochs = [epoch for epoch in range(1, orders.epochs + 1) if epoch not in orders.empty]
    given = [n for epoch in epochs for n in range(10 * epoch, 10 * epoch + 10)]
    assert seen == given
    left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    assert postgres.psql(orders.dsn, left) == []
    assert len(postgres.psql(orders.dsn, f"SELECT DISTINCT epoch FROM {MARKERS}")) <= 1
    newest = RecordLog(DirectoryStore(orders.home / "snapshots")).newest()
    assert newest is not None
    assert newest[1].epoch == orders.epochs
