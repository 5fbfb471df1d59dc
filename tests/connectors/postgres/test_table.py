"""The check of a table, without Spark: what refuses every row is found at the start, what can refuse one is known."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import types as T

from sparkjet.connectors.postgres.copying import connect
from sparkjet.connectors.postgres.table import Table, look
from sparkjet.connectors.postgres.types import columns_of
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    pass

SCHEMA = T.StructType([T.StructField("k", T.StringType()), T.StructField("n", T.LongType())])


@pytest.fixture
def user(dsn: str) -> str:
    """The dsn of a user without rights of its own."""
    name = f"u{uuid.uuid4().hex}"
    run(dsn, f"CREATE ROLE {name} LOGIN; GRANT CREATE ON SCHEMA public TO {name}")
    return make_conninfo(dsn, user=name)


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def inspect(dsn: str, *keys: str, schema: T.StructType = SCHEMA) -> Table:
    with connect(dsn) as connection:
        return look(connection, "out", columns_of(schema), keys, create=False)


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        ("k text, n bigint GENERATED ALWAYS AS (1) STORED", (), r'"n" is GENERATED ALWAYS.*drop\("n"\)'),
        ("k text PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY", ("k",), '"n" is GENERATED ALWAYS'),
    ],
)
def test_a_column_that_the_server_computes_is_refused(
    dsn: str, table: str, keys: tuple[str, ...], message: str
) -> None:
    run(dsn, f"CREATE TABLE out ({table})")
    with pytest.raises(AnalysisError, match=message):
        inspect(dsn, *keys)


def test_a_column_that_the_server_numbers_may_be_given_or_left_out(dsn: str) -> None:
    run(
        dsn, "CREATE TABLE out (k text, n bigint GENERATED ALWAYS AS IDENTITY, m bigint GENERATED ALWAYS AS (n) STORED)"
    )
    assert inspect(dsn).target.columns == ("k", "n")


@pytest.mark.parametrize("setter", ["ROLE", "DATABASE", "dsn"])
def test_read_only_transactions_are_refused_with_the_setting(dsn: str, user: str, setter: str) -> None:
    with connect(user) as connection:
        role, database = connection.info.user, connection.info.dbname
    if setter == "dsn":
        user = make_conninfo(user, options="-c default_transaction_read_only=on")
    else:
        name = role if setter == "ROLE" else database
        run(dsn, f'ALTER {setter} "{name}" SET default_transaction_read_only = on')
    with pytest.raises(
        AnalysisError, match=rf'user "{role}" in database "{database}".*default_transaction_read_only=off'
    ):
        inspect(user)
    assert inspect(make_conninfo(user, options="-c default_transaction_read_only=off")).target.table == "out"


def test_row_level_security_is_refused_where_rows_are_copied(dsn: str, user: str) -> None:
    run(dsn, "CREATE TABLE out (k text PRIMARY KEY, n bigint)", "ALTER TABLE out ENABLE ROW LEVEL SECURITY")
    run(dsn, "GRANT ALL ON out TO public")
    with pytest.raises(AnalysisError, match=r"row-level security for user .*BYPASSRLS"):
        inspect(user)
    assert inspect(user, "k").refusals.reasons == ("row-level security",)
    assert inspect(dsn).refusals.reasons == ("index out_pkey",)


def test_the_right_to_merge_is_checked(dsn: str, user: str) -> None:
    with connect(dsn) as connection:
        run(dsn, f'REVOKE TEMPORARY ON DATABASE "{connection.info.dbname}" FROM public')
    with pytest.raises(AnalysisError, match=r"mode=upsert: user .* lacks the privilege TEMPORARY on database"):
        inspect(user, "k")
    assert inspect(user).target.keys == ()


def test_a_rule_that_no_upsert_can_be_written_with_is_refused(dsn: str) -> None:
    run(dsn, "CREATE TABLE out (k text PRIMARY KEY, n bigint)")
    run(dsn, "CREATE RULE also AS ON INSERT TO out DO ALSO NOTIFY out")
    with pytest.raises(AnalysisError, match=r'has the rule "also" on INSERT or UPDATE'):
        inspect(dsn, "k")
    # COPY knows no rules, and an upsert none that is disabled.
    assert inspect(dsn).target.keys == ()
    run(dsn, "ALTER TABLE out DISABLE RULE also")
    assert inspect(dsn, "k").target.keys == ("k",)


REFUSING = {
    "CREATE TABLE out (k text, n bigint CONSTRAINT positive CHECK (n > 0))": ("constraint positive",),
    "CREATE TABLE other (k text PRIMARY KEY); CREATE TABLE out (k text CONSTRAINT known REFERENCES other, n bigint)": (
        "constraint known",
    ),
    "CREATE TABLE out (k text PRIMARY KEY, n bigint)": ("index out_pkey",),
    "CREATE TABLE out (k text, n bigint, CONSTRAINT apart EXCLUDE (n WITH =))": ("index apart",),
    "CREATE TABLE out (k text, n bigint); CREATE INDEX inverse ON out ((1 / n))": ("index inverse",),
    "CREATE TABLE out (k text, n bigint); CREATE INDEX part ON out (n) WHERE 1 / n > 0": ("index part",),
    "CREATE TABLE out (k text, n bigint, inverse bigint GENERATED ALWAYS AS (1 / n) STORED)": (
        "generated column inverse",
    ),
    "CREATE DOMAIN given AS text NOT NULL; CREATE TABLE out (k text, n bigint, other given)": (
        "domain of column other",
    ),
    """CREATE TABLE out (k text, n bigint);
    CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
    CREATE TRIGGER never AFTER INSERT ON out EXECUTE FUNCTION no();
    CREATE TRIGGER on_delete AFTER DELETE ON out EXECUTE FUNCTION no();
    CREATE TRIGGER disabled AFTER INSERT ON out EXECUTE FUNCTION no();
    ALTER TABLE out DISABLE TRIGGER disabled""": ("trigger never",),
    """CREATE TABLE out (k text, n bigint) PARTITION BY RANGE (n);
    CREATE TABLE low PARTITION OF out FOR VALUES FROM (0) TO (9);
    ALTER TABLE low ADD CONSTRAINT odd CHECK (n % 2 = 1);
    CREATE UNIQUE INDEX once ON low (k)""": ("constraint odd", "partitions", "index once"),
    "CREATE TABLE out (k text, n bigint, m numeric NOT NULL DEFAULT 1); CREATE INDEX ON out (n, m)": (),
}


@pytest.mark.parametrize("statements", REFUSING)
def test_what_can_refuse_a_row_is_known(dsn: str, statements: str) -> None:
    run(dsn, statements)
    found = inspect(dsn).refusals
    assert found.reasons == REFUSING[statements]
    assert found.is_unique == any(name in " ".join(found.reasons) for name in ("pkey", "apart", "once"))
    assert found.measured == ()


def test_the_index_of_the_keys_refuses_nothing_but_long_text(dsn: str) -> None:
    run(dsn, "CREATE TABLE out (k text PRIMARY KEY, n bigint)", "CREATE TABLE child (k text REFERENCES out)")
    found = inspect(dsn, "k").refusals
    assert found.measured == ("k",)
    assert [reason.partition(" ")[0] for reason in found.reasons] == ["constraint"]
    run(dsn, "DROP TABLE child")
    assert inspect(dsn, "k").refusals.reasons == ()
    run(dsn, "CREATE UNIQUE INDEX again ON out (n)")
    assert inspect(dsn, "k").refusals.reasons == ("index again",)


def test_an_index_on_lists_may_refuse_any_of_them(dsn: str) -> None:
    lists = T.StructType([T.StructField("k", T.ArrayType(T.LongType())), T.StructField("n", T.DecimalType(9, 2))])
    run(dsn, "CREATE TABLE out (k bigint[], n numeric)", "CREATE INDEX listed ON out (k)", "CREATE INDEX ON out (n)")
    assert inspect(dsn, schema=lists).refusals.reasons == ("index listed",)


def test_the_tables_that_foreign_keys_lead_to_are_known(dsn: str) -> None:
    run(dsn, "CREATE SCHEMA other", "CREATE TABLE other.a (k text PRIMARY KEY)", "CREATE TABLE c (k text PRIMARY KEY)")
    run(
        dsn,
        "CREATE TABLE b (k text PRIMARY KEY REFERENCES other.a)",
        "CREATE TABLE out (k text REFERENCES b, n bigint)",
    )
    assert inspect(dsn).refusals.related == {("other", "a"), ("public", "b"), ("public", "out")}
