"""Tables of Spark's catalog: the contract of all sinks, new and existing tables, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import AnalysisError, RefusedRowsError
from sparkjet.sinks.table import TableSink, table_sink
from sparkjet.testing.sink_contract import SCHEMA, SinkContract, SinkUnderTest, transaction
from tests.feed import Feed, rows
from tests.sinks.test_files import staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter

NAME = "sparkjet_table"


@pytest.fixture(autouse=True)
def _no_table_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql(f"DROP TABLE IF EXISTS {NAME}")


def sink_of(spark: SparkSession, name: str = NAME, **given: Any) -> TableSink:
    arguments = {"file_format": None, "partition_by": (), "options": {}, "path": None, **given}
    sink = table_sink(name, spark, **arguments)
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    return sink


class TestTable(SinkContract):
    """In CI, what a catalog makes different: files are those of `test_files.py`, which keeps the whole contract."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
    )

    @pytest.fixture
    def target(self, spark: SparkSession) -> SinkUnderTest:
        sink = sink_of(spark)
        sink.create()
        return SinkUnderTest(
            sink,
            lambda: [tuple(row) for row in spark.table(NAME).select("k", "n").collect()],
            lambda: len(staged(sink.directory)),
        )


def writer(spark: SparkSession, feed: Feed, home: Path) -> StreamWriter:
    stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
    counts = stream.groupBy(sj.window("ts", "10 seconds"), "k").count().select("count", "k")
    return counts.writeStream.option("checkpointLocation", home / "ck").trigger(availableNow=True)


def test_a_table_is_created_and_grows_in_the_session_that_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 2, 12], k="a"))
    query = writer(spark, feed, tmp_path).toTable(NAME, partitionBy="k", queryName="counts", compression="gzip")
    query.awaitTermination()
    assert (query.name, query.guarantees) == ("counts", {"results": "exactly-once"})
    assert [tuple(row) for row in spark.table(NAME).collect()] == [(2, "a")]
    feed.add(*rows([25], k="b"))
    writer(spark, feed, tmp_path).toTable(f"default.{NAME}").awaitTermination()
    assert sorted(tuple(row) for row in spark.table(NAME).collect()) == [(1, "a"), (2, "a")]
    assert spark.catalog.getTable(NAME).tableType == "MANAGED"


def test_a_table_keeps_its_format_options_and_order_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE {NAME} (n BIGINT, k STRING) USING csv OPTIONS (header 'true', sep ';') LOCATION '{tmp_path}/t'"
    )
    sink = sink_of(spark, file_format="csv", path=f"{tmp_path}/t", options={"quoteAll": "true"})
    sink.create()
    handle = sink.prepare(spark.createDataFrame([("a;b", 1)], SCHEMA).coalesce(1), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    assert [tuple(row) for row in spark.table(NAME).collect()] == [(1, "a;b")]
    (file,) = (tmp_path / "t").glob("part-*")
    assert file.read_text().splitlines() == ['"n";"k"', '"1";"a;b"']


def test_partitions_are_known_to_the_catalog(spark: SparkSession) -> None:
    spark.sql(f"CREATE TABLE {NAME} (v INT, k STRING, d DATE) USING parquet PARTITIONED BY (k, d)")
    sink = table_sink(NAME, spark, None, (), {}, None)
    found = spark.createDataFrame([("a/b'c\\", "2026-01-02", 1), (None, "2026-01-02", 2)], "k string, d string, v int")
    found = found.select("k", found.d.cast("date").alias("d"), "v")
    sink.check(found.schema)
    sink.create()
    handle = sink.prepare(found, transaction(1))
    assert handle is not None
    for _ in range(2):
        sink.commit(handle, lambda: None)
    assert sorted(map(str, spark.table(NAME).select("k", "d", "v").collect())) == sorted(map(str, found.collect()))
    assert spark.table(NAME).where("k IS NULL AND d = DATE'2026-01-02'").count() == 1


def test_a_new_table_has_the_given_place_and_what_its_readers_need(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_of(
        spark, file_format="csv", path=f"{tmp_path}/it's here", options={"header": "true", "nullValue": "it's \\n"}
    )
    assert not spark.catalog.tableExists(NAME)
    sink.create()
    sink.create()
    handle = sink.prepare(spark.createDataFrame([("a", 1), (None, 2)], SCHEMA), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    assert sorted((tuple(row) for row in spark.table(NAME).collect()), key=str) == [("a", 1), (None, 2)]
    assert list((tmp_path / "it's here").glob("part-*"))


@pytest.mark.parametrize(
    ("name", "given", "named"),
    [
        (NAME, {"file_format": "json"}, 'format is "json", but .* has "parquet"'),
        (NAME, {"partition_by": ["n"]}, 'partitionBy is "n", but .* has "k"'),
        (NAME, {"path": "/elsewhere"}, 'path is "/elsewhere", but'),
        ("sparkjet_view", {}, "its format is a view.*foreachBatch"),
        ("sparkjet_temporary", {}, "it is a temporary view"),
        ("lake.db.clicks", {}, "belongs to the catalog 'lake'"),
        ("two words", {}, "'two words' is not the name of a table"),
        ("sparkjet_new", {"path": "s3a://bucket/t"}, 'toTable: Hadoop cannot open "s3a://bucket/t"'),
    ],
)
def test_other_tables_are_refused(spark: SparkSession, name: str, given: dict[str, Any], named: str) -> None:
    spark.sql(f"CREATE TABLE {NAME} ({SCHEMA}) USING parquet PARTITIONED BY (k)")
    spark.sql("CREATE OR REPLACE VIEW sparkjet_view AS SELECT 1 AS n")
    spark.range(1).createOrReplaceTempView("sparkjet_temporary")
    try:
        with pytest.raises(AnalysisError, match=named):
            sink_of(spark, name, **given)
    finally:
        spark.sql("DROP VIEW sparkjet_view")
        spark.catalog.dropTempView("sparkjet_temporary")


def test_rows_must_have_the_columns_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {NAME} (k STRING, n INT)")
    with pytest.raises(
        AnalysisError, match=r"has the columns k string, n int, the rows have k string, n bigint\. Select"
    ):
        sink_of(spark)
    with pytest.raises(AnalysisError, match=r'format\("postgres"\) is not one of files'):
        writer(spark, Feed(tmp_path / "in"), tmp_path).toTable(NAME, "postgres")


def test_collations_in_a_table_of_orc_are_refused_as_spark_could_not_read_it(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS n, ARRAY('a' COLLATE UNICODE_CI) AS texts")
    sink = table_sink("collated", spark, "orc", (), {}, None)
    with pytest.raises(AnalysisError, match=r"toTable: .* has a collation, .* texts array<string collate UNICODE_CI>"):
        sink.check(rows.schema)
    table_sink("collated", spark, "parquet", (), {}, None).check(rows.schema)
    sink.check(rows.selectExpr("n", "CAST(texts AS ARRAY<STRING>) AS texts").schema)


def test_a_table_of_sparks_own_streaming_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1], k="a"))
    plain = feed.read(spark).select("k").writeStream.option("checkpointLocation", str(tmp_path / "plain"))
    plain.trigger(availableNow=True).toTable(NAME, format="parquet").awaitTermination()
    with pytest.raises(AnalysisError, match=r"toTable: .* was written by Spark's own streaming"):
        sj.stream(feed.read(spark)).select("k").writeStream.option("checkpointLocation", tmp_path / "ck").toTable(NAME)
    assert not (tmp_path / "ck").exists()


def published(spark: SparkSession, found: DataFrame, *epochs: int) -> None:
    """Rows in the table, as several epochs."""
    sink = table_sink(NAME, spark, None, (), {}, None)
    sink.check(found.schema)
    sink.create()
    for epoch in epochs:
        handle = sink.prepare(found, transaction(epoch))
        assert handle is not None
        sink.commit(handle, lambda: None)


@pytest.mark.parametrize(
    ("definition", "keys"),
    [
        pytest.param("USING parquet CLUSTERED BY (v) SORTED BY (k) INTO 2 BUCKETS", ["v"], marks=pytest.mark.long),
        ("USING json PARTITIONED BY (k) CLUSTERED BY (v) INTO 3 BUCKETS", ["v"]),
        ("USING csv OPTIONS (header 'true') CLUSTERED BY (v, k) INTO 2 BUCKETS", ["v", "k"]),
    ],
)
def test_files_of_a_bucketed_table_are_those_of_its_buckets(
    spark: SparkSession, definition: str, keys: list[str]
) -> None:
    spark.sql(f"CREATE TABLE {NAME} (k STRING, v BIGINT) {definition}")
    spark.sql(f"INSERT INTO {NAME} (k, v) SELECT CAST(id % 2 AS STRING), id FROM RANGE(10)")
    added = spark.sql("SELECT CAST(id % 3 AS STRING) AS k, id AS v FROM RANGE(20)").repartition(2)
    published(spark, added.select(*spark.table(NAME).columns), 1, 2)
    # Without an exchange: each task reads one bucket of both sides.
    joined = spark.table(NAME).join(spark.table(NAME).hint("merge"), keys)
    assert "Exchange hashpartitioning" not in joined._jdf.queryExecution().executedPlan().toString()
    values = [(n, str(n % 2)) for n in range(10)] + [(n, str(n % 3)) for n in range(20)] * 2
    found = Counter(each[: len(keys)] for each in values)
    assert joined.count() == sum(number * number for number in found.values())
    assert [tuple(row) for row in spark.table(NAME).where("v = 7").select("k", "v").collect()] == [("1", 7)] * 3


LENGTHS = "k VARCHAR(3), c CHAR(4), n STRUCT<x: VARCHAR(2)>, a ARRAY<CHAR(3)>, m MAP<VARCHAR(2), CHAR(2)>, v BIGINT"
VALUES = {"k": "'abc'", "c": "'x'", "n": "STRUCT('12' AS x)", "a": "ARRAY('a', NULL)", "m": "MAP('a', 'b')", "v": "1L"}


def of_lengths(spark: SparkSession, **changed: str) -> DataFrame:
    return spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, value in (VALUES | changed).items()))


@pytest.mark.parametrize("partitions", ["", "PARTITIONED BY (v)", "PARTITIONED BY (k, c)"])
def test_declared_lengths_are_kept_as_an_insert_keeps_them(spark: SparkSession, partitions: str) -> None:
    spark.sql(f"CREATE TABLE {NAME} ({LENGTHS}) USING parquet {partitions}")
    found = of_lengths(spark).select(*spark.table(NAME).columns)
    nothing = of_lengths(spark, **dict.fromkeys(("k", "c"), "CAST(NULL AS STRING)")).select(*found.columns)
    found.write.insertInto(NAME)
    published(spark, found.union(nothing), 1)
    first, second, last = spark.table(NAME).orderBy(F.desc("k")).select("k", "c", "a", "n", "m", "v").collect()
    assert first == second
    assert (first.k, first.c, first.a, last.k, last.c) == ("abc", "x   ", ["a  ", None], None, None)


@pytest.mark.parametrize(
    "changed",
    [{"k": "'abcd'"}, {"c": "'abcde'"}, {"n": "STRUCT('123' AS x)"}, {"a": "ARRAY('abcd')"}, {"m": "MAP('abc', 'b')"}],
)
def test_a_value_that_is_too_long_is_refused_before_the_decision(spark: SparkSession, changed: dict[str, str]) -> None:
    spark.sql(f"CREATE TABLE {NAME} ({LENGTHS}) USING parquet")
    with pytest.raises(RefusedRowsError, match=r"does not take a row: \[EXCEED_LIMIT_LENGTH\]"):
        published(spark, of_lengths(spark, **changed), 1)
    assert spark.table(NAME).count() == 0


def test_nothing_that_a_table_can_declare_is_overlooked(spark: SparkSession) -> None:
    """A property that a new version of Spark adds has to be honoured or refused, and then named here."""
    for column in ("v INT CHECK (v > 0)", "v INT PRIMARY KEY", "v INT GENERATED ALWAYS AS (1)"):
        with pytest.raises(PySparkException, match="UNSUPPORTED_FEATURE"):
            spark.sql(f"CREATE TABLE {NAME} ({column}) USING parquet")
    spark.sql(f"CREATE TABLE {NAME} (k STRING NOT NULL, v INT DEFAULT 7) USING parquet TBLPROPERTIES ('a' = 'b')")
    # An INSERT takes nulls as well.
    published(spark, spark.sql("SELECT CAST(NULL AS STRING) AS k, CAST(NULL AS INT) AS v"), 1)
    assert [tuple(row) for row in spark.table(NAME).collect()] == [(None, None)]
    state: Any = spark._jsparkSession.sessionState()
    table = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(NAME))
    assert {str(table.productElementName(number)) for number in range(table.productArity())} <= {
        *("identifier", "multipartIdentifier", "owner", "createTime", "lastAccessTime", "createVersion", "comment"),
        *("viewText", "viewOriginalText", "stats", "ignoredProperties", "schemaPreservesCase", "unsupportedFeatures"),
        # Honoured; of the properties, an INSERT into files heeds none.
        *(
            "tableType",
            "provider",
            "storage",
            "schema",
            "collation",
            "partitionColumnNames",
            "tracksPartitionsInCatalog",
        ),
        *("bucketSpec", "properties"),
    }


def test_a_new_table_where_spark_would_look_for_a_pattern_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r'toTable: Spark takes "\[" in the location .* of a table for a pattern'):
        sink_of(spark, path=f"{tmp_path}/a[b]")
    sink = sink_of(spark, path=f"{tmp_path}/a[b]", partition_by=["k"])
    sink.create()
    handle = sink.prepare(spark.createDataFrame([("a", 1)], SCHEMA), transaction(1))
    assert handle is not None
    sink.commit(handle, lambda: None)
    assert [tuple(row) for row in spark.table(NAME).collect()] == [(1, "a")]


def test_lengths_do_not_count_where_they_do_not_for_an_insert(spark: SparkSession) -> None:
    spark.sql(f"CREATE TABLE {NAME} (k CHAR(3), n BIGINT) USING parquet")
    spark.conf.set("spark.sql.legacy.charVarcharAsString", "true")
    try:
        spark.sql(f"INSERT INTO {NAME} VALUES ('long', 1), ('a', 2)")
        sink = sink_of(spark)
        sink.create()
        handle = sink.prepare(spark.createDataFrame([("long", 1), ("a", 2)], SCHEMA), transaction(1))
        assert handle is not None
        sink.commit(handle, lambda: None)
        assert Counter(spark.table(NAME).collect()) == {("long", 1): 2, ("a", 2): 2}
    finally:
        spark.conf.unset("spark.sql.legacy.charVarcharAsString")
