"""The format ``jdbc``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


JDBC_OPTIONS: Mapping[str, str] = {
    "url": "The database, jdbc:…; what follows a ? or ; in it is never logged or recorded.",
    "driver": "Class of the driver; by default the one that is registered for the URL.",
    "user": "User name.",
    "password": "Password; never logged or recorded.",
    "dbtable": "Name of the table as it stands in SQL; it is created if it does not exist.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "progressInterval": "Least time between epochs without rows that tell readers of the watermark (none do).",
    "tryOut": "Whether the rows of an epoch are written and rolled back before its decision (true).",
    "batchsize": "Rows of a round trip, as in Spark's JDBC writer (1000).",
    "numPartitions": "Maximum number of connections, as in Spark's JDBC writer.",
    "isolationLevel": "Of the transactions in which tasks write, as in Spark's JDBC writer.",
    "queryTimeout": "Seconds that a statement may take, as in Spark's JDBC writer (for ever).",
    "sessionInitStatement": "Statement with which each connection that publishes rows begins.",
    "createTableOptions": "What CREATE TABLE ends with for a new table, as in Spark's JDBC writer.",
    "createTableColumnTypes": "Types of columns of a new table, as in Spark's JDBC writer: name VARCHAR(64), ….",
    "connectionProvider": "Name of the provider of connections, as in Spark's JDBC writer.",
    "keytab": "File with the Kerberos key, as in Spark's JDBC writer.",
    "principal": "Of Kerberos, as in Spark's JDBC writer.",
    "refreshKrb5Config": "As in Spark's JDBC writer.",
}
"""Options of ``format("jdbc")``."""


def _sink(target: Target) -> Sink:
    from sparkjet.connectors.jdbc.settings import JdbcSettings  # noqa: PLC0415 - on use only
    from sparkjet.connectors.jdbc.sink import JdbcSink  # noqa: PLC0415 - as above

    return JdbcSink(JdbcSettings.of(target.options), target.session)


SINK = SinkFormat("jdbc", _sink, JDBC_OPTIONS)
