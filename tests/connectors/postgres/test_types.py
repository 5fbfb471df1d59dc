"""Types of the PostgreSQL sink: every value arrives unchanged, or its column is refused by name before the start."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from sparkjet.errors import AnalysisError
from sparkjet.spark_line import LINE
from sparkjet.testing.sink_contract import transaction
from tests.connectors.postgres.test_sink import sink_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[str, list[tuple[str, str]]] = {
    # Spark's type: values as SQL, and what psql's own text of the column must be.
    "boolean": [("true", "true"), ("false", "false")],
    "byte": [("-128Y", "-128")],
    "short": [("32767S", "32767")],
    "int": [("-2147483648", "-2147483648")],
    "long": [("9223372036854775807L", "9223372036854775807")],
    "float": [("float('0.1')", "0.1"), ("float('NaN')", "NaN"), ("float('-Infinity')", "-Infinity")],
    "double": [("1e300D", "1e+300"), ("double('NaN')", "NaN"), ("double('Infinity')", "Infinity"), ("0.1D", "0.1")],
    "decimal(38,18)": [("cast('-12345678901234567890.123456789012345678' as decimal(38,18))",) * 2],
    "decimal(5,0)": [("cast(99999 as decimal(5,0))", "99999")],
    "string": [
        ("''", ""),
        ("'\\\\N'", "\\N"),
        ("'a\"b,c\\n\\\\.\\n\\t\\'é😀'", "a\"b,c\n\\.\n\t'é😀"),
        ("'NULL'", "NULL"),
        ("' '", " "),
    ],
    "binary": [("X'00FF5C'", "\\x00ff5c"), ("X''", "\\x")],
    "date": [("date'0001-01-01'", "0001-01-01"), ("date'9999-12-31'", "9999-12-31")],
    "timestamp": [
        ("timestamp'2026-11-21 09:30:00.000001+02:00'", "2026-11-21 07:30:00.000001+00"),
        ("timestamp'0001-01-01 00:00:00Z'", "0001-01-01 00:00:00+00"),
    ],
    "timestamp_ntz": [("timestamp_ntz'2026-03-29 02:30:00.5'", "2026-03-29 02:30:00.5")],
    **({"time": [("time'23:59:59.999999'", "23:59:59.999999")]} if LINE >= (4, 1) else {}),
    "interval day to second": [("interval '-1 02:03:04.000005' day to second", "-1 days -02:03:04.000005")],
    "interval year to month": [("interval '-1-2' year to month", "-1 years -2 mons")],
    "array<string>": [
        ("array('a\"b', null, '', 'NULL', '{,}\\\\')", '{"a\\"b",NULL,"","NULL","{,}\\\\"}'),
        ("array()", "{}"),
    ],
    "array<double>": [("array(1.5D, double('NaN'), null)", "{1.5,NaN,NULL}")],
    "array<timestamp>": [("array(timestamp'2026-01-01 00:00:00Z')", '{"2026-01-01 00:00:00+00"}')],
    "array<binary>": [("array(X'00')", '{"\\\\x00"}')],
    "array<decimal(4,2)>": [("array(12.34BD)", "{12.34}")],
    "array<array<int>>": [("array(array(1), null)", "[[1], null]")],
    "struct<a:int,b:string>": [("named_struct('a', 1, 'b', null)", '{"a": 1, "b": null}')],
    "map<string,long>": [("map('x', 1L)", '{"x": 1}')],
    "variant": [("parse_json('{\"a\": [1, null]}')", '{"a": [1, null]}')],
}


@pytest.mark.parametrize("way", ["always", "never"])
def test_every_value_of_every_type_arrives_as_it_was(spark: SparkSession, tmp_path: Path, dsn: str, way: str) -> None:
    names = [f"{of} {number}" for of, values in VALUES.items() for number in range(len(values))]
    of_each = [of for of, values in VALUES.items() for _ in values]
    given = [sql for values in VALUES.values() for sql, _ in values]
    expected = [
        text.split("'")[1] if text.startswith("cast(") else text for values in VALUES.values() for _, text in values
    ]
    cast = [f"cast({sql} as {of}) as `{name}`" for sql, of, name in zip(given, of_each, names, strict=True)]
    nulls = [f"cast(null as {of}) as `{name}`" for of, name in zip(of_each, names, strict=True)]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET timezone TO 'Asia/Tokyo'".encode())
    spark = spark.newSession()
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    rows = spark.sql(f"SELECT {', '.join(cast)} UNION ALL SELECT {', '.join(nulls)}")
    sink = sink_of(spark, tmp_path, dsn, rows.schema, dbtable='"Odd.name"', prepared=way)  # type: ignore[arg-type]
    handle = sink.prepare(rows, transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with psycopg.connect(dsn, options="-c timezone=UTC") as connection:
        columns = ", ".join(f'"{name}"::text' for name in names)
        query = f'SELECT {columns} FROM public."Odd.name" ORDER BY "int 0" NULLS LAST'
        first, second = connection.execute(query.encode()).fetchall()
    assert dict(zip(names, first, strict=True)) == dict(zip(names, expected, strict=True))
    assert set(second) == {None}


def test_numbers_come_back_as_the_same_numbers(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    numbers = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, math.pi]
    sink = sink_of(spark, tmp_path, dsn, "x double")
    handle = sink.prepare(spark.createDataFrame([(n,) for n in numbers], "x double"), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with psycopg.connect(dsn) as connection:
        seen = connection.execute("SELECT x FROM out").fetchall()
    assert sorted(map(repr, (x for (x,) in seen))) == sorted(map(repr, numbers))


REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "void": ("v void", {}, r"column 'v' has type void"),
    "calendar interval": ("i struct<x: interval>", {}, r"column 'i' has type struct<x:interval>"),
    "unknown key": ("k string", {"mode": "upsert", "keyColumns": "j"}, r"keyColumns: no column 'j'"),
    "no key": ("k string", {"mode": "upsert"}, r"mode=upsert needs option\(\"keyColumns\""),
    "key without upsert": ("k string", {"keyColumns": "k"}, r"keyColumns: with mode=append, rows have no keys"),
    "no table": ("k string", {"dbtable": "a.b.c"}, r"has 3 parts"),
    "no name": ("k string", {"dbtable": "a b"}, r"is not a table name"),
    "no schema": ("k string", {"dbtable": "nowhere.t"}, r'there is no schema "nowhere"'),
    "a view": ("k string", {"dbtable": "a_view"}, r"is not a table but a view"),
    "missing column": ("k string, nn long", {"dbtable": "there"}, r'no column "nn"; did you mean "n"'),
    "type": ("k string, n string", {"dbtable": "there"}, r'"n" is bigint, but the query has string, which needs text'),
    "narrow": ("k string, n long, d decimal(10,2)", {"dbtable": "there"}, r'"d" is numeric\(10,1\)'),
    "not null": ("k string", {"dbtable": "there"}, r'column "n" is NOT NULL without a default'),
    "no index": ("k string, n long", {"dbtable": "there", "mode": "upsert", "keyColumns": "k"}, r"no primary key"),
    "too many": ("k string", {"numPartitions": "65"}, r"65 writers, but max_prepared_transactions is 64"),
    "always upsert": (
        "k string",
        {"prepared": "always", "mode": "upsert", "keyColumns": "k"},
        r"prepared=always: mode=upsert merges",
    ),
    "always unique": ("k string", {"prepared": "always", "dbtable": "uniq"}, r"uniq has a unique index"),
    "long name": (f"{'x' * 64} string", {}, r"exceeds 63 bytes"),
    "no database": ("k string", {"dbname": "nowhere"}, r'database "nowhere" does not exist.*option dbname'),
    "nobody": ("k string", {"port": "1"}, r"Check that the server runs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_name_before_the_start(
    spark: SparkSession, tmp_path: Path, dsn: str, case: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE there (k text, n bigint NOT NULL, d numeric(10,1))")
        connection.execute("CREATE TABLE uniq (k text UNIQUE)")
        connection.execute("CREATE VIEW a_view AS SELECT 'x'::text AS k")
    schema, options, message = REFUSED[case]
    settings: dict[str, Any] = dict(options)
    with pytest.raises(AnalysisError, match=message):
        sink_of(spark, tmp_path, dsn, schema, **settings)


def test_a_table_that_is_there_may_be_wider(spark: SparkSession, tmp_path: Path, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE out (id bigint GENERATED ALWAYS AS IDENTITY, n numeric, k varchar, d numeric(12,3), "
            "at timestamptz NOT NULL DEFAULT now())"
        )
    schema = "k string, n int, d decimal(10,2)"
    sink = sink_of(spark, tmp_path, dsn, schema)
    handle = sink.prepare(spark.sql("SELECT 'a' k, 1 n, cast(2.5 as decimal(10,2)) d"), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT id, k, n::int, d::text FROM out").fetchall() == [(1, "a", 1, "2.500")]
