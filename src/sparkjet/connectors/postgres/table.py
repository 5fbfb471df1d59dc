"""The table on the server: checked before a query starts, created if it is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from sparkjet.connectors.postgres.copying import IMPATIENT
from sparkjet.connectors.postgres.names import one, parsed
from sparkjet.connectors.postgres.refusals import Refusals, refusals_of
from sparkjet.connectors.postgres.target import MARKERS, Target
from sparkjet.errors import AnalysisError, nearest

if TYPE_CHECKING:
    import psycopg

    from sparkjet.connectors.postgres.types import PostgresColumn

OLDEST = 130_000
_LOCK = 0x5BA2_14E7
"""Advisory lock held while tables are created, as two queries that start at once must not both create one."""


@dataclass(frozen=True)
class Table:
    """The target, as found on the server.

    Attributes:
        target: The names, for statements.
        can_prepare: The server's ``max_prepared_transactions``.
        required: Columns that are NOT NULL.
        refusals: What can refuse rows.
        encoding: The database's encoding.
    """

    target: Target
    can_prepare: int
    required: tuple[str, ...]
    refusals: Refusals
    encoding: str


def look(
    connection: psycopg.Connection[Any],
    name: str,
    columns: Sequence[PostgresColumn],
    keys: tuple[str, ...],
    *,
    create: bool,
) -> Table:
    """Create what is missing, check everything that can be checked without rows, and describe the table."""
    check_server(connection)
    schema, table = parsed(connection, name)
    instants = frozenset(n for n, column in enumerate(columns) if column.is_instant)
    target = Target(schema, table, tuple(column.name for column in columns), keys, instants)
    with connection.transaction(force_rollback=not create):
        connection.execute(IMPATIENT)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if _ident(connection, schema, table) is None:
            _check_may_create(connection, schema)
            connection.execute(_create(target, columns))
        oid = _ident(connection, schema, table)
        assert oid is not None  # noqa: S101 - created above
        required = _check_columns(connection, oid, target, columns)
        _check_keys(connection, oid, target)
        if _ident(connection, schema, MARKERS) is None:
            _check_may_create(connection, schema)
            connection.execute(target.create_markers())
        _check_privileges(connection, oid, target)
        refusals = refusals_of(connection, oid, target, columns)
        limit = int(one(connection, "SHOW max_prepared_transactions"))
        encoding = connection.info.parameter_status("server_encoding") or ""
        return Table(target, limit, tuple({*required, *keys}), refusals, encoding)


def check_server(connection: psycopg.Connection[Any]) -> None:
    """Refuse a server that is too old, or that accepts no rows."""
    if connection.info.server_version < OLDEST:
        version = connection.info.parameter_status("server_version")
        raise AnalysisError(f"postgres: the server is PostgreSQL {version}; 13 or newer is needed.")
    if one(connection, "SELECT pg_is_in_recovery()"):
        raise AnalysisError("postgres: the server is a read-only standby. Point host and port at the primary.")
    if one(connection, "SHOW default_transaction_read_only") == "on":
        message = (
            f'postgres: transactions of user "{connection.info.user}" in database "{connection.info.dbname}" are '
            "read-only (default_transaction_read_only). Set it to off for the role or the database, or in the dsn: "
            "options='-c default_transaction_read_only=off'."
        )
        raise AnalysisError(message)


def _ident(connection: psycopg.Connection[Any], schema: str, table: str) -> int | None:
    found = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))::oid"
    oid: int | None = one(connection, found, schema, table)
    return oid


def _check_may_create(connection: psycopg.Connection[Any], schema: str) -> None:
    if not one(connection, "SELECT has_schema_privilege(%s, 'CREATE')", schema):
        message = (
            f'dbtable: user "{connection.info.user}" may not create tables in schema "{schema}", and the target or '
            f'"{MARKERS}" is missing. Grant CREATE, or have its owner create them.'
        )
        raise AnalysisError(message)


def _create(target: Target, columns: Sequence[PostgresColumn]) -> sql.Composed:
    # Safe to insert unquoted: the type comes from a table of constants.
    each = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.accepted[0])) for c in columns]
    if target.keys:
        each.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, target.keys))))
    return sql.SQL("CREATE TABLE {} ({})").format(target.name, sql.SQL(", ").join(each))


def _check_columns(
    connection: psycopg.Connection[Any], oid: int, target: Target, columns: Sequence[PostgresColumn]
) -> list[str]:
    """Reject columns that do not fit; returns those that are NOT NULL."""
    where = f'dbtable: "{target.schema}.{target.table}"'
    if one(connection, "SELECT relkind IN ('r', 'p') FROM pg_class WHERE oid = %s", oid) is not True:
        raise AnalysisError(f"{where} is not a table but a view or the like, which COPY cannot write. Name a table.")
    listing = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, atthasdef OR attidentity <> '', "
        "attgenerated <> '', attidentity = 'a' "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped",
        [oid],
    )
    found = {name: described for name, *described in listing}
    for column in columns:
        if column.name not in found:
            message = (
                f'{where} has no column "{column.name}"; {nearest(column.name, found)}. Add it to the table, rename '
                f"or drop it in the query, or name a table that does not exist: it is created."
            )
            raise AnalysisError(message)
        there, _, _, is_generated, is_numbered = found[column.name]
        # COPY overrides the numbers of an identity column, an upsert's INSERT may not.
        if is_generated or (is_numbered and target.keys):
            message = (
                f'{where}: column "{column.name}" is GENERATED ALWAYS, so the server computes it. Leave it out of the '
                f'query\'s result: drop("{column.name}").'
            )
            raise AnalysisError(message)
        if not column.fits(there):
            message = (
                f'{where}: column "{column.name}" is {there}, but the query has {column.type.simpleString()}, which '
                f"needs {' or '.join(column.accepted)}. Cast it in the query, or change the table."
            )
            raise AnalysisError(message)
    given = set(target.columns)
    for name, (_, not_null, filled, *_) in found.items():
        if name not in given and not_null and not filled:
            message = (
                f'{where}: column "{name}" is NOT NULL without a default, but is not in the query\'s result. Add it: '
                f'withColumn("{name}", …).'
            )
            raise AnalysisError(message)
    return [name for name, (_, not_null, *_) in found.items() if not_null and name in given]


def _check_keys(connection: psycopg.Connection[Any], oid: int, target: Target) -> None:
    if not target.keys:
        return
    matching = one(
        connection,
        "SELECT EXISTS (SELECT FROM pg_index i WHERE indrelid = %s AND indisunique AND indpred IS NULL "
        "AND indexprs IS NULL AND indimmediate AND (SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute "
        "WHERE attrelid = indrelid AND attnum = ANY (indkey::int2[])) = %s::text[])",
        oid,
        sorted(target.keys),
    )
    if not matching:
        message = (
            f'keyColumns: "{target.schema}.{target.table}" has no primary key or unique index on exactly '
            f"({', '.join(target.keys)}), which mode=upsert needs. Create it, or name the columns of one that is there."
        )
        raise AnalysisError(message)
    rule = one(
        connection,
        "SELECT rulename::text FROM pg_rewrite WHERE ev_class = %s "
        "AND (ev_type = '2' OR ev_type = '3' AND ev_enabled <> 'D') "
        "ORDER BY rulename LIMIT 1",
        oid,
    )
    if rule is not None:
        message = (
            f'mode=upsert: "{target.schema}.{target.table}" has the rule "{rule}" on INSERT or UPDATE, with which '
            "PostgreSQL supports no INSERT … ON CONFLICT. Drop the rule; a trigger can do what it does."
        )
        raise AnalysisError(message)


def _check_privileges(connection: psycopg.Connection[Any], oid: int, target: Target) -> None:
    markers = _ident(connection, target.schema, MARKERS)
    needed = [(oid, target.table, "INSERT"), *((markers, MARKERS, each) for each in ("INSERT", "SELECT", "DELETE"))]
    if target.keys:
        needed += [(oid, target.table, "SELECT"), (oid, target.table, "UPDATE")]
    for table, name, privilege in needed:
        if not one(connection, "SELECT has_table_privilege(%s::oid, %s)", table, privilege):
            quoted = f'"{target.schema}"."{name}"'
            message = (
                f'dbtable: user "{connection.info.user}" lacks the privilege {privilege} on {quoted}. '
                f'GRANT {privilege} ON {quoted} TO "{connection.info.user}".'
            )
            raise AnalysisError(message)

    if target.keys and not one(connection, "SELECT has_database_privilege(current_database(), 'TEMPORARY')"):
        message = (
            f'mode=upsert: user "{connection.info.user}" lacks the privilege TEMPORARY on database '
            f'"{connection.info.dbname}": rows are merged in a temporary table. Grant it.'
        )
        raise AnalysisError(message)
    if not target.keys and one(connection, "SELECT row_security_active(%s::oid)", oid):
        message = (
            f'dbtable: "{target.schema}.{target.table}" has row-level security for user "{connection.info.user}", '
            "which COPY does not support. Use a user with BYPASSRLS or the table's owner, or mode=upsert."
        )
        raise AnalysisError(message)
