"""Settings of the JDBC sink, from the options of ``writeStream``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.options import (
    MOST_PARTITIONS,
    PASSWORD,
    PROGRESS_INTERVAL,
    UPSERT_OPTIONS,
    Option,
    flag,
    number,
    text,
    upsert_keys,
)

if TYPE_CHECKING:
    from sparkjet.options import Options

_URL = text("url", "The database, jdbc:…; what follows a ? or ; in it is never logged or recorded.")
_TABLE = text("dbtable", "Name of the table as it stands in SQL; it is created if it does not exist.")
_SPARKS: Sequence[Option[Any]] = (
    _URL,
    text("driver", "Class of the driver; by default the one that is registered for the URL."),
    text("user", "User name."),
    PASSWORD,
    _TABLE,
    text("batchsize", "Rows of a round trip, as in Spark's JDBC writer.", "1000"),
    number("numPartitions", "Maximum number of connections, as in Spark's JDBC writer.", most=MOST_PARTITIONS),
    text("isolationLevel", "Of the transactions in which tasks write, as in Spark's JDBC writer.", "READ_UNCOMMITTED"),
    text("queryTimeout", "Seconds that a statement may take, as in Spark's JDBC writer; forever by default."),
    text("connectionProvider", "Name of the provider of connections, as in Spark's JDBC writer."),
    text("keytab", "File with the Kerberos key, as in Spark's JDBC writer."),
    text("principal", "Of Kerberos, as in Spark's JDBC writer."),
    text("refreshKrb5Config", "As in Spark's JDBC writer."),
)
"""The options passed on to Spark's data source."""
_TRY_OUT = flag("tryOut", "Whether the rows of an epoch are written and rolled back before its decision.", default=True)
_INIT_STATEMENT = text("sessionInitStatement", "Statement with which each connection that publishes rows begins.")
_TABLE_OPTIONS = text(
    "createTableOptions", "What CREATE TABLE ends with for a new table, as in Spark's JDBC writer.", ""
)
_TABLE_TYPES = text(
    "createTableColumnTypes", "Types of columns of a new table, as in Spark's JDBC writer: name VARCHAR(64), …."
)
OPTIONS: Sequence[Option[Any]] = (
    *_SPARKS,
    *UPSERT_OPTIONS,
    *(_TRY_OUT, _INIT_STATEMENT, _TABLE_OPTIONS, _TABLE_TYPES, PROGRESS_INTERVAL),
)
"""Options of ``format("jdbc")``."""

_SHOWN = re.compile(r"(jdbc:(?:[\w+-]+:)*(?://)?)(?:[^?;]*@|[^=]*@)?([^?;=(,]*).*", re.DOTALL | re.IGNORECASE)
"""The part of a URL without passwords: the scheme, and what follows an @ and precedes all named values."""

_PART = r'(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s."`\[\]();,]+)'
_NAME = re.compile(rf"\s*(?:{_PART}?\s*\.\s*)*{_PART}\s*")
"""A table as written in SQL; other things that Spark's reader takes, such as a query in parentheses, are read-only."""


@dataclass(frozen=True)
class JdbcSettings:
    """The parsed options.

    Attributes:
        spark: Options for Spark's data source ``jdbc``; may include a password and is never shown.
        table: The option ``dbtable``.
        keys: The option ``keyColumns``; empty with mode=append.
        tries: Whether rows are written and rolled back before each decision.
        table_options: The end of a new table's ``CREATE TABLE``.
        table_types: Column types of a new table, as in Spark.
        initial: A statement for each connection that publishes.
        progress_interval: The option ``progressInterval``, in microseconds.
    """

    spark: Mapping[str, str] = field(repr=False)
    table: str
    keys: tuple[str, ...] = ()
    tries: bool = True
    table_options: str = ""
    table_types: str | None = None
    initial: str | None = None
    progress_interval: int | None = None

    @property
    def url(self) -> str:
        """The URL; may include a password."""
        return self.spark["url"]

    @property
    def account(self) -> Sequence[str | None]:
        """The database it leads to, and the user: another user may not write what this one does."""
        return [self.spark.get(name) for name in ("url", "user", "principal")]

    @property
    def shown(self) -> str:
        """The URL without possible secrets.

        >>> JdbcSettings({"url": "jdbc:mysql://ann:pw@db:3306/shop?password=pw"}, "t").shown
        'jdbc:mysql://db:3306/shop'
        """
        return _SHOWN.sub(r"\1\2", self.url, count=1)

    @staticmethod
    def of(options: Options) -> JdbcSettings:
        """The settings in some options."""
        url, table = options[_URL], options[_TABLE]
        if not url or not url.lower().startswith("jdbc:"):
            raise AnalysisError('start: format("jdbc") needs option("url", "jdbc:…"), the database, as in Spark.')
        if not table:
            raise AnalysisError('start: format("jdbc") needs option("dbtable", "…"), the table to write to.')
        if _NAME.fullmatch(table) is None:
            message = (
                f'dbtable: "{table}" is not the name of a table to write rows to. Give its name as it stands '
                'in SQL, with what qualifies it: shop.orders; quoted if it has other characters: shop."my orders".'
            )
            raise AnalysisError(message)
        return JdbcSettings(
            options.among(_SPARKS),
            table,
            upsert_keys(options),
            options[_TRY_OUT],
            options[_TABLE_OPTIONS],
            options[_TABLE_TYPES],
            options[_INIT_STATEMENT],
            options[PROGRESS_INTERVAL],
        )
