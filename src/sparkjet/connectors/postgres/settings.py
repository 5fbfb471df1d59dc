"""Settings of the PostgreSQL sink, from the options of ``writeStream``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sparkjet.connectors.postgres.options import DSN, NUM_PARTITIONS, PARTS, PREPARED, TABLE
from sparkjet.errors import AnalysisError
from sparkjet.options import PROGRESS_INTERVAL, upsert_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.options import Options


@dataclass(frozen=True)
class PostgresSettings:
    """The parsed options.

    Attributes:
        conninfo: The connection string; includes the password and is never shown.
        table: The option ``dbtable``.
        keys: The option ``keyColumns``; empty with mode=append.
        prepared: ``auto``, ``always`` or ``never``.
        writers: The option ``numPartitions``.
        progress_interval: The option ``progressInterval``, in microseconds.
    """

    conninfo: str = field(repr=False)
    table: str
    keys: tuple[str, ...] = ()
    prepared: str = "auto"
    writers: int | None = None
    progress_interval: int | None = None

    @staticmethod
    def of(options: Options) -> PostgresSettings:
        """The settings in some options."""
        table = options[TABLE]
        if table is None:
            raise AnalysisError('start: format("postgres") needs option("dbtable", "…"), the table to write to.')
        return PostgresSettings(
            _conninfo(options),
            table,
            upsert_keys(options),
            options[PREPARED],
            options[NUM_PARTITIONS],
            options[PROGRESS_INTERVAL],
        )


def _conninfo(options: Options) -> str:
    given, dsn = options.among(PARTS), options[DSN]
    if not dsn and "host" not in given and "dbname" not in given:
        message = 'start: format("postgres") needs option("dsn", "host=… dbname=… user=…"), or host, dbname and user.'
        raise AnalysisError(message)
    return connection_string(dsn, given)


def connection_string(dsn: str, given: Mapping[str, str] | None = None) -> str:
    """A dsn and the parts given separately as one string, with a time after which a silent server is given up."""
    defaults = {"connect_timeout": "10", "application_name": "sparkjet"}
    try:
        return make_conninfo("", **{**defaults, **conninfo_to_dict(dsn), **(given or {})})
    except psycopg.Error:
        # The cause quotes parts of the string, possibly the password.
        message = (
            "dsn: this is not a PostgreSQL connection string. Write host=… port=… dbname=… user=… password=…, with "
            "values that hold blanks in single quotes, or postgresql://user@host:port/dbname with %-escapes."
        )
        raise AnalysisError(message) from None
