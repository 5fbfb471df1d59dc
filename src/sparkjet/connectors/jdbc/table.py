"""The target table: checked before a query starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparkjet.catalyst.jdbc import message_of
from sparkjet.errors import AnalysisError, nearest
from sparkjet.query_log import logger
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkjet.catalyst.jdbc import Dialect
    from sparkjet.connectors.jdbc.database import Connection, Place, TableColumn
    from sparkjet.connectors.jdbc.settings import JdbcSettings

_STRICT = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"}
_ENGINES = {"innodb", "rocksdb", "ndbcluster", "tokudb"}
_PREFIXES = (
    "SELECT column_name FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? "
    "AND non_unique = 0 AND sub_part IS NOT NULL"
)

_COLLATED = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ? "
    "AND collation_name NOT LIKE '%nopad\\_bin'"
)


def family_of(dialect: Dialect, connection: Connection, settings: JdbcSettings) -> str:
    """The family of databases that the statements depend on; refuses those where rows would be lost."""
    product, version = connection.product()
    is_mysql = product.lower() in {"mysql", "mariadb"}
    if is_mysql and dialect.name != "MySQLDialect":
        message = (
            f"url: Spark does not know {settings.url.split('//')[0]}: as {product}'s, and would quote names as it does "
            'not. Write jdbc:mysql://HOST:PORT/DATABASE?permitMysqlScheme with driver="org.mariadb.jdbc.Driver".'
        )
        raise AnalysisError(message)
    if not connection.has_transactions():
        message = f"url: {product} {version} has no transactions, without which rows would be there twice or in parts."
        raise AnalysisError(message)
    if not is_mysql:
        return ""
    [(mode,)] = connection.query("SELECT @@sql_mode")
    if not _STRICT & set((mode or "").upper().split(",")):
        message = (
            f"url: {product} would change values that do not fit, without a word, as its sql_mode is {mode!r}. Add "
            "sessionVariables=sql_mode='STRICT_TRANS_TABLES' to the url, or set it in the server."
        )
        raise AnalysisError(message)
    [(flushes,)] = connection.query("SELECT @@innodb_flush_log_at_trx_commit")
    if flushes != "1":
        logger.warning(
            "%s has innodb_flush_log_at_trx_commit=%s: a power failure there may take back epochs that were published.",
            product,
            flushes,
        )
    return "mysql"


def check_engine(connection: Connection, family: str, place: Place) -> None:
    """Refuse a table whose engine has no transactions."""
    if family != "mysql":
        return
    found = connection.query(
        "SELECT engine FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
        place.catalog,
        place.table,
    )
    engine = (found[0][0] if found else None) or "of a view"
    if engine.lower() not in _ENGINES:
        message = (
            f'dbtable: "{place.table}" has the engine {engine}, which has no transactions: rows would be there twice '
            f"after a crash. ALTER TABLE {place.table} ENGINE=InnoDB."
        )
        raise AnalysisError(message)


def names_in(table: str, found: Sequence[TableColumn], schema: StructType) -> Mapping[str, str]:
    """The table's name for each column of the rows: the same, or the only one that differs only in case."""
    names = {}
    where = f"dbtable: {table}"
    for own in schema.fieldNames():
        same = [each for each in found if each.name == own] or [e for e in found if e.name.lower() == own.lower()]
        if len(same) != 1:
            message = (
                f'{where} has no column "{own}"; {nearest(own, [each.name for each in found])}. Add it to the table, '
                "rename or drop it in the query, or name a table that does not exist: it is created."
            )
            raise AnalysisError(message)
        if same[0].is_generated:
            message = (
                f'{where}: column "{same[0].name}" is computed by the database. Leave it out of the query\'s result: '
                f'drop("{own}").'
            )
            raise AnalysisError(message)
        names[own] = same[0].name
    for each in found:
        if each.is_required and each.name not in names.values():
            message = (
                f'{where}: column "{each.name}" is NOT NULL without a default, but is not in the query\'s result. Add '
                f'it: withColumn("{each.name}", …).'
            )
            raise AnalysisError(message)
    return names


def check_keys(connection: Connection, family: str, place: Place, keys: Sequence[str]) -> None:
    """Refuse keys by which the database would not find the row to replace."""
    if not keys:
        return
    unique = connection.unique_keys(place)
    if frozenset(keys) not in unique:
        message = (
            f'keyColumns: "{place.table}" has no primary key or unique index on exactly ({", ".join(keys)}), which '
            "mode=upsert needs. Create it, or name the columns of one that is there."
        )
        raise AnalysisError(message)
    others = [each for each in unique if each != frozenset(keys)]
    if family == "mysql" and others:
        message = (
            f'keyColumns: "{place.table}" has another unique index, on ({", ".join(sorted(others[0]))}), by '
            "which MySQL would replace rows as well. Drop it, or use mode=append."
        )
        raise AnalysisError(message)
    begun = connection.query(_PREFIXES, place.catalog, place.table) if family == "mysql" else []
    if begun:
        message = (
            f'keyColumns: the unique index of "{place.table}" has only the beginning of {begun[0][0]}, so that rows '
            "with other keys would be replaced. Make it one of the whole column, such as a VARCHAR."
        )
        raise AnalysisError(message)


def collated(connection: Connection, family: str, place: Place, keys: Sequence[str]) -> tuple[str, ...]:
    """The keys that the database compares by a collation: it may take two different ones for equal."""
    found = connection.query(_COLLATED, place.catalog, place.table) if family == "mysql" and keys else []
    return tuple(key for key in keys if (key,) in found)


def new_columns(dialect: Dialect, schema: StructType, settings: JdbcSettings) -> str:
    """The columns of a new table; Spark cannot write columns that it cannot create into an old one either."""
    try:
        columns = dialect.columns(schema, settings.table_types)
    except JAVA_ERRORS as error:
        message = (
            f"dbtable: Spark cannot write these columns: {message_of(error)} Arrays, maps and structs can be written "
            "as text, to_json(column), and other types once they are cast to one that the database has."
        )
        raise AnalysisError(message) from error
    keys = ", ".join(dialect.quoted(key) for key in settings.keys)
    return f"{columns}, PRIMARY KEY ({keys})" if keys else columns
