"""Names of tables, as the server reads them; without PySpark, as readers of markers have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    import psycopg


def parsed(connection: psycopg.Connection[Any], name: str, option: str = "dbtable") -> tuple[str, str]:
    """Schema and table of a name, by the server's own rules for quotes, case and search_path."""
    from psycopg import errors  # noqa: PLC0415 - the extra is optional

    try:
        parts = one(connection, "SELECT parse_ident(%s)", name)
    except errors.InvalidParameterValue as error:
        message = f'{option}: "{name}" is not a table name: {error.diag.message_primary}. Write table or schema.table.'
        raise AnalysisError(message) from error
    if len(parts) > 2:  # noqa: PLR2004 - schema and table
        message = (
            f'{option}: "{name}" has {len(parts)} parts. Write table or schema.table; the database is option dbname.'
        )
        raise AnalysisError(message)
    if len(parts) == 2:  # noqa: PLR2004 - as above
        if not one(connection, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", parts[0]):
            raise AnalysisError(f'{option}: there is no schema "{parts[0]}". Create it, or correct the name.')
        return parts[0], parts[1]
    found = one(
        connection,
        "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass(%s)",
        name,
    )
    schema = found or one(connection, "SELECT current_schema()")
    if schema is None:
        message = f'{option}: no schema of the search_path exists to create "{name}" in. Write schema.{name}.'
        raise AnalysisError(message)
    return schema, parts[0]


def one(connection: psycopg.Connection[Any], query: str, *values: object) -> Any:
    """The first value of the first row that a query finds; None if it finds none."""
    row = connection.execute(query.encode(), values or None).fetchone()
    return None if row is None else row[0]
