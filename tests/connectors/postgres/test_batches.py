"""Batches through COPY: values of every binary form, what has none goes as CSV, and a table that changes meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from sparkjet.connectors.postgres.batches import copy_batches, forms_of
from sparkjet.connectors.postgres.copying import connect
from sparkjet.connectors.postgres.target import Target

COLUMNS: dict[str, tuple[pa.DataType, str, list[Any], list[str]]] = {
    # Arrow's type, the table's, values, and what psql's own text of them must be.
    "byte": (pa.int8(), "smallint", [-128, 127], ["-128", "127"]),
    "byte into more": (pa.int8(), "bigint", [-128, 127], ["-128", "127"]),
    "short": (pa.int16(), "smallint", [-32768, 32767], ["-32768", "32767"]),
    "short into more": (pa.int16(), "integer", [-1, 258], ["-1", "258"]),
    "int": (pa.int32(), "integer", [-(2**31), 2**31 - 1], ["-2147483648", "2147483647"]),
    "int into more": (pa.int32(), "bigint", [-(2**31), 66051], ["-2147483648", "66051"]),
    "long": (pa.int64(), "bigint", [-(2**63), 2**63 - 1], ["-9223372036854775808", "9223372036854775807"]),
    "boolean": (pa.bool_(), "boolean", [True, False], ["true", "false"]),
    "float": (pa.float32(), "real", [0.1, math.inf], ["0.1", "Infinity"]),
    "float into more": (pa.float32(), "double precision", [0.5, -math.inf], ["0.5", "-Infinity"]),
    "double": (pa.float64(), "double precision", [-0.0, math.nan], ["-0", "NaN"]),
    "date": (pa.date32(), "date", [date(1, 1, 1), date(9999, 12, 31)], ["0001-01-01", "9999-12-31"]),
    "ntz": (
        pa.timestamp("us"),
        "timestamp",
        [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
        ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"],
    ),
    "instant": (
        pa.int64(),
        "timestamptz",
        [-62_135_596_800_000_000, 1_000_001],
        ["0001-01-01 00:00:00+00", "1970-01-01 00:00:01.000001+00"],
    ),
    "text": (pa.string(), "text", ["", "a\"b,c\n\\.\t'é😀"], ["", "a\"b,c\n\\.\t'é😀"]),
    "varchar": (pa.string(), "varchar", ["\\N", "NULL"], ["\\N", "NULL"]),
    "json": (pa.string(), "jsonb", ['{"b":[1,null],"a":"é"}', "null"], ['{"a": "é", "b": [1, null]}', "null"]),
}
INSTANTS = frozenset({list(COLUMNS).index("instant")})


def batches() -> pa.RecordBatch:
    """The values and then nulls, as a part of a larger batch, as slices have offsets into shared buffers."""
    values = [pa.array([None, *values, None, None], kind) for kind, _, values, _ in COLUMNS.values()]
    return pa.record_batch(values, [str(number) for number in range(len(values))]).slice(1, 3)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(dsn) as connection:
        connection.execute("SET timezone TO 'Asia/Tokyo'")
        yield connection


def table(connection: psycopg.Connection[Any], columns: dict[str, str]) -> Target:
    each = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(of)) for name, of in columns.items()]  # type: ignore[arg-type]
    connection.execute(sql.SQL('CREATE TABLE "Odd.{{}}" ({})').format(sql.SQL(", ").join(each)))
    return Target("public", "Odd.{}", tuple(columns))


def copied(connection: psycopg.Connection[Any], target: Target, rows: list[pa.RecordBatch]) -> int | None:
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone TO 'UTC'")
        return copy_batches(cursor, target.copy().as_string(), target.types().as_string(), rows, INSTANTS)


def texts(connection: psycopg.Connection[Any], target: Target) -> list[tuple[str | None, ...]]:
    connection.execute("SET timezone TO 'UTC'")
    each = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in target.columns)
    return connection.execute(sql.SQL("SELECT {} FROM {}").format(each, target.name)).fetchall()


@pytest.mark.parametrize("more", [{}, {"amount": "numeric"}], ids=["binary", "csv"])
def test_values_and_nulls_arrive_as_they_were(connection: psycopg.Connection[Any], more: dict[str, str]) -> None:
    target = table(connection, {**{name: of for name, (_, of, _, _) in COLUMNS.items()}, **more})
    rows = batches()
    for name in more:
        rows = rows.append_column(name, pa.array([1, 2, 3]))
    types = [of for (of,) in connection.execute(target.types())]
    assert (forms_of(rows.schema, types) is None) == bool(more)
    assert copied(connection, target, [rows.slice(0, 0), rows.slice(0, 1), rows.slice(1)]) == 3
    expected: list[tuple[str | None, ...]] = list(zip(*(found for _, _, _, found in COLUMNS.values()), strict=True))
    expected.append((None,) * len(COLUMNS))
    assert [row[: len(COLUMNS)] for row in texts(connection, target)] == expected


def test_without_rows_nothing_is_copied(connection: psycopg.Connection[Any]) -> None:
    target = table(connection, {"n": "bigint"})
    empty = pa.record_batch({"n": pa.array([], pa.int64())})
    assert copied(connection, target, [empty]) is None
    assert copied(connection, target, []) is None
    assert texts(connection, target) == []


@pytest.mark.parametrize(
    ("kind", "type_", "value"),
    [
        (pa.int64(), "timestamptz", -(2**63)),
        (pa.date32(), "date", -(2**31)),
        (pa.date32(), "date", 2**31 - 1),
        (pa.timestamp("us"), "timestamp", -(2**63)),
    ],
)
def test_times_beyond_those_of_the_server_are_refused_and_become_no_others(
    connection: psycopg.Connection[Any], kind: pa.DataType, type_: str, value: int
) -> None:
    target = table(connection, {"t": type_})
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    row = pa.record_batch({"t": pa.array([value], whole).cast(kind)})
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        copied(connection, target, [row])
    assert texts(connection, target) == []


@pytest.mark.parametrize("type_", ["double precision", "timestamptz"])
def test_a_column_that_gets_another_type_while_rows_wait_is_noticed(
    connection: psycopg.Connection[Any], dsn: str, type_: str
) -> None:
    target = table(connection, {"n": "bigint"})
    change = sql.SQL("ALTER TABLE {0} DROP COLUMN n; ALTER TABLE {0} ADD COLUMN n {1}")

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1])})

    class Changing(psycopg.Cursor[Any]):
        """Has the table changed between the question for its types and the rows."""

        def copy(self, *given: Any, **more: Any) -> Any:
            with psycopg.connect(dsn, autocommit=True) as other:
                other.execute(change.format(target.name, sql.SQL(type_)))  # type: ignore[arg-type]
            return super().copy(*given, **more)

    connection.cursor_factory = Changing
    with pytest.raises(psycopg.errors.DatatypeMismatch):
        copied(connection, target, list(rows()))
    assert texts(connection, target) == []
    # The next attempt asks again.
    connection.cursor_factory = psycopg.Cursor
    if type_ == "double precision":
        assert copied(connection, target, list(rows())) == 1
        assert texts(connection, target) == [("1",)]
