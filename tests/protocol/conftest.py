"""Orders for drivers without Spark."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.protocol.driver import TARGET, Orders

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer


@pytest.fixture
def orders(postgres: PostgresServer, tmp_path: Path) -> Orders:
    """Orders for a driver with its own database, table and directory."""
    # A failed test may have left it stopped.
    postgres.start()
    dsn = postgres.database(f"t{uuid.uuid4().hex}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE out (n bigint, task int)")
        connection.execute(TARGET.create_markers())
    return Orders(tmp_path, dsn)
