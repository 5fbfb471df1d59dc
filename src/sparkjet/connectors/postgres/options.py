"""Options of ``format("postgres")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.options import MOST_PARTITIONS, PROGRESS_INTERVAL, UPSERT_OPTIONS, Option, choice, number, text

DSN = text("dsn", "Connection string of libpq; the next five options override it. Never logged or recorded.", "")
PARTS = (
    text("host", "Host name of the server."),
    text("port", "Port of the server."),
    text("dbname", "Name of the database."),
    text("user", "User name."),
    text("password", "Password; never logged or recorded. libpq also reads its password file."),
)
"""Options that override a part of the connection string."""
TABLE = text("dbtable", "Name of the table, with or without its schema; it is created if it does not exist.")
PREPARED = choice(
    "prepared",
    "Whether rows wait in prepared transactions for the decision; auto prepares where possible.",
    ("auto", "always", "never"),
    "auto",
)
NUM_PARTITIONS = number(
    "numPartitions", "Maximum number of connections, as in Spark's JDBC writer.", most=MOST_PARTITIONS
)
OPTIONS: Sequence[Option[Any]] = (DSN, *PARTS, TABLE, *UPSERT_OPTIONS, PREPARED, NUM_PARTITIONS, PROGRESS_INTERVAL)
