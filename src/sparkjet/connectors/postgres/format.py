"""The format ``postgres``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target, extra

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


POSTGRES_OPTIONS: Mapping[str, str] = {
    "dsn": "Connection string of libpq; the next five options override it. Never logged or recorded.",
    "host": "Host name of the server.",
    "port": "Port of the server.",
    "dbname": "Name of the database.",
    "user": "User name.",
    "password": "Password; never logged or recorded. libpq also reads its password file.",
    "dbtable": "Name of the table, with or without its schema; it is created if it does not exist.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: the columns, separated by commas, that identify the row to replace.",
    "prepared": "auto (default), always or never: whether rows wait in prepared transactions for the decision.",
    "numPartitions": "Maximum number of connections, as in Spark's JDBC writer.",
    "progressInterval": "Least time between epochs without rows that tell readers of the watermark (none do).",
}
"""Options of ``format("postgres")``."""


def _sink(target: Target) -> Sink:
    with extra("postgres"):
        from sparkjet.connectors.postgres.settings import PostgresSettings  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.postgres.sink import PostgresSink  # noqa: PLC0415 - as above
    return PostgresSink(PostgresSettings.of(target.options))


SINK = SinkFormat("postgres", _sink, POSTGRES_OPTIONS)
