"""Text that a database cannot store: refused with the column's name before the decision, with both ways."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from sparkjet.errors import AnalysisError, SinkError
from sparkjet.testing.sink_contract import transaction
from tests.connectors.postgres.test_sink import sink_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.postgres import PostgresServer

WAYS = {
    "prepared": {"prepared": "always"},
    "outbox": {"prepared": "never"},
    "upsert": {"mode": "upsert", "keyColumns": "schlüssel"},
}
SCHEMA = "`schlüssel` string, a array<string>, j struct<s: string>, n long"
GOOD = ("'é'", "array('ß\"', null)", "named_struct('s', 'ÿ')", "1L")


@pytest.fixture
def latin(postgres: PostgresServer) -> str:
    """A database with the encoding LATIN1."""
    return postgres.database(f"t{uuid.uuid4().hex}", "LATIN1")


@pytest.mark.parametrize("way", ["prepared", "outbox", pytest.param("upsert", marks=pytest.mark.long)])
def test_a_character_that_the_database_lacks_is_refused_before_the_decision(
    spark: SparkSession, tmp_path: Path, latin: str, way: str
) -> None:
    sink, shape = sink_of(spark, tmp_path, latin, SCHEMA, **WAYS[way]), spark.createDataFrame([], SCHEMA).schema
    bad = {"schlüssel": (0, "'éц€'"), "a": (1, "array('a', 'éц')"), "j": (2, "named_struct('s', 'ц')")}
    for epoch, (name, (position, value)) in enumerate(bad.items(), 1):
        values = [*GOOD[:position], value, *GOOD[position + 1 :]]
        rows = spark.sql(f"SELECT {', '.join(GOOD)} UNION ALL SELECT {', '.join(values)}").toDF(*shape.names).to(shape)
        with pytest.raises(SinkError, match=r"LATIN1.*created with ENCODING 'UTF8', or replace") as refused:
            sink.prepare(rows, transaction(epoch))
        assert way == "prepared" or f"column '{name}' has 'ц'" in str(refused.value)
    sink.abort_orphans(transaction(1).query, 1, [])
    rows = spark.sql(f"SELECT {', '.join(GOOD)}").toDF(*shape.names).to(shape)
    handle = sink.prepare(rows, transaction(9, takeover=1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    with psycopg.connect(latin, client_encoding="UTF8") as connection:
        seen = connection.execute('SELECT "schlüssel", a, j, n FROM out').fetchall()
    assert seen == [("é", ['ß"', None], {"s": "ÿ"}, 1)]


@pytest.mark.parametrize("way", ["prepared", "outbox"])
def test_bytes_that_are_not_utf8_are_refused_before_the_decision(
    spark: SparkSession, tmp_path: Path, dsn: str, way: str
) -> None:
    sink = sink_of(spark, tmp_path, dsn, "k string, a array<string>", **WAYS[way])
    for epoch, values in enumerate(["cast(X'61FF' as string), array('')", "'', array(cast(X'61FF' as string))"]):
        rows = spark.sql(f"SELECT {values}").toDF("k", "a")
        with pytest.raises(SinkError, match=r"(not|invalid) UTF-8.*make_valid_utf8"):
            sink.prepare(rows, transaction(epoch))


def test_a_name_that_the_database_lacks_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, latin: str
) -> None:
    with pytest.raises(AnalysisError, match="The encoding of this database is LATIN1"):
        sink_of(spark, tmp_path, latin, "`цена` long")
