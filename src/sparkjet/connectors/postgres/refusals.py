"""Refusals: what in a table can refuse a row that fits its columns, so that rows are tried out before the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

if TYPE_CHECKING:
    import psycopg

    from sparkjet.connectors.postgres.target import Target
    from sparkjet.connectors.postgres.types import PostgresColumn

LONGEST = 2000
"""Bytes of text in an index row that it is certain to accept: a third of a page, less other columns."""
_MEASURED = (T.StringType, T.CharType, T.VarcharType, T.BinaryType)
_SHORT = (T.DecimalType, type(None))
"""Types of variable length in PostgreSQL, but never long; None is a column that the rows do not have."""
_TREE = """
WITH RECURSIVE tree AS (SELECT %(oid)s::oid AS relid UNION SELECT relid::oid FROM pg_partition_tree(%(oid)s::oid))
"""
"""The table and, as rows are routed to them, its partitions."""
_REASONS = """
SELECT format('constraint %%I', conname) FROM pg_constraint, tree
WHERE contype IN ('c', 'f') AND (conrelid = relid OR confrelid = relid AND %(replaces)s)
UNION SELECT format('trigger %%I', tgname) FROM pg_trigger, tree
WHERE tgrelid = relid AND NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgtype & 20 <> 0
UNION SELECT format('generated column %%I', attname) FROM pg_attribute, tree
WHERE attrelid = relid AND attgenerated <> '' AND NOT attisdropped
UNION SELECT format('domain of column %%I', attname) FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid, tree
WHERE attrelid = relid AND attnum > 0 AND NOT attisdropped AND typtype = 'd'
UNION SELECT 'partitions' FROM pg_class, tree WHERE oid = relid AND (relkind = 'p' OR relispartition)
UNION SELECT 'more columns than a page has room for' FROM pg_class, tree WHERE oid = relid AND relnatts > 300
UNION SELECT 'row-level security' FROM tree WHERE row_security_active(relid)
ORDER BY 1
"""
"""Reasons that do not depend on the row; a trigger's type is a sum of bits, 4 for INSERT and 16 for UPDATE."""
_INDEXES = """
, columns AS (
    SELECT indexrelid, array_agg(attname::text ORDER BY attname) AS every,
           array_agg(attname::text) FILTER (WHERE attlen < 0) AS long
    FROM pg_index JOIN tree ON indrelid = relid JOIN pg_attribute ON attrelid = indrelid
    WHERE attnum = ANY (indkey::int2[]) GROUP BY indexrelid
)
SELECT relname, indisunique OR indisexclusion,
       indisunique AND indimmediate AND indpred IS NULL AND indexprs IS NULL AND every = %(keys)s::text[],
       indpred IS NULL AND indexprs IS NULL AND amname IN ('btree', 'hash'), coalesce(long, '{}')
FROM pg_index JOIN tree ON indrelid = relid JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
     LEFT JOIN columns USING (indexrelid)
WHERE indisready ORDER BY relname
"""
_RELATED = """
WITH RECURSIVE related AS (
    SELECT %(oid)s::oid AS relid
    UNION SELECT following.relid FROM related, LATERAL (
        SELECT confrelid::oid AS relid FROM pg_constraint WHERE conrelid = related.relid AND contype = 'f'
        UNION ALL SELECT tree.relid FROM pg_partition_tree(pg_partition_root(related.relid)) AS tree
    ) AS following
)
SELECT nspname::text, relname::text FROM related JOIN pg_class ON pg_class.oid = relid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
"""
"""A partition also meets what was written through the table that it is a part of."""


@dataclass(frozen=True)
class Refusals:
    """Everything that can refuse a row whose values have the right types, with nulls only where allowed.

    Attributes:
        reasons: What can refuse any row, for the log; if there is nothing, rows need not be tried out.
        measured: Columns of text in indexes, which refuse a row with more than :data:`LONGEST` bytes in them.
        is_unique: Whether rows of the table or of a partition can conflict, replaced ones among them.
        related: Schema and name of the table, of all tables that its foreign keys refer to, and of all partitions of
            these tables.
    """

    reasons: tuple[str, ...]
    measured: tuple[str, ...]
    is_unique: bool
    related: frozenset[tuple[str, str]]


def refusals_of(
    connection: psycopg.Connection[Any], oid: int, target: Target, columns: Sequence[PostgresColumn]
) -> Refusals:
    """Ask the server what can refuse rows of a table."""
    asked = {"oid": oid, "replaces": bool(target.keys), "keys": sorted(target.keys)}
    reasons = [reason for (reason,) in connection.execute((_TREE + _REASONS).encode(), asked)]
    types, measured, is_unique = {column.name: column.type for column in columns}, set(), False
    for name, conflicts, is_arbiter, is_plain, long in connection.execute((_TREE + _INDEXES).encode(), asked):
        is_unique = is_unique or conflicts
        if (
            is_plain
            and (is_arbiter or not conflicts)
            and all(isinstance(types.get(each), (*_MEASURED, *_SHORT)) for each in long)
        ):
            measured |= {each for each in long if isinstance(types.get(each), _MEASURED)}
        else:
            reasons.append(f"index {name}")
    related = frozenset(map(tuple, connection.execute(_RELATED.encode(), asked)))
    return Refusals(tuple(reasons), tuple(sorted(measured)), is_unique, related)
