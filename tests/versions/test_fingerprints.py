"""Texts that identify a query in its records are the same on all lines of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LINES = [line.split("\t") for line in Path(__file__).with_name("fingerprints.tsv").read_text().splitlines()]
SPELLED = {text: spelled for text, spelled, _ in LINES}
"""Aggregates as users write them, and as a record has them, on every line."""
UNSAID: dict[str, dict[str, Any]] = {text: json.loads(unsaid) for text, _, unsaid in LINES if unsaid != "{}"}
"""Parts that the SQL of some leaves out, on the newest line."""
ALIKE = (
    ("first(n)", "first(n) ignore nulls"),
    ("last(n)", "last(n) ignore nulls"),
    ("any_value(n)", "any_value(n, true)"),
    ("first(n) filter (where f)", "first(n, true) filter (where f)"),
    ("approx_count_distinct(n)", "approx_count_distinct(n, 0.01)"),
    ("count(from_json(s, 'a int'))", "count(from_json(s, 'b int'))"),
    ("count(from_json(s, 'a int'))", "count(from_json(s, 'a int', map('mode', 'FAILFAST')))"),
    ("count(to_json(st))", "count(to_json(st, map('ignoreNullFields', 'false')))"),
    ("count(*) filter (where from_csv(s, 'a int').a > 1)", "count(*) filter (where from_csv(s, 'b int, a int').a > 1)"),
    ("count(variant_get(v, '$.a', 'int'))", "count(variant_get(v, '$.a', 'string'))"),
    ("sum(aggregate(a, 0, (u, e) -> u - e))", "sum(aggregate(a, 0, (u, e) -> e - u))"),
    ("max(transform(a, (e, i) -> e))", "max(transform(a, (e, i) -> i))"),
    ("count_if(s ilike 'a!%' escape '!')", "count_if(s ilike 'a!%' escape '%')"),
    (
        "max(CASE WHEN from_json(s, 'a int').a > 1 THEN n END)",
        "max(CASE WHEN from_json(s, 'b int, a int').a > 1 THEN n END)",
    ),
    ("max(nvl(from_json(s, 'a int').a, 0))", "max(nvl(from_json(s, 'a int, b int').a, 0))"),
)
"""Different aggregates, most of which SQL writes in one way."""

CONDITIONS = {
    "n = o AND at >= ts AND at <= ts + interval 1 hour": (
        "(((l.n = r.o) AND (r.at >= l.ts)) AND (r.at <= CAST(l.ts + INTERVAL '01' HOUR AS TIMESTAMP)))"
    ),
    "n = o AND at between ts - interval '1' minute and ts + interval 2 minutes AND s like 'a%'": (
        "(((l.n = r.o) AND ((r.at >= CAST(l.ts + (- INTERVAL '01' MINUTE) AS TIMESTAMP)) AND "
        "(r.at <= CAST(l.ts + INTERVAL '02' MINUTE AS TIMESTAMP)))) AND l.s LIKE 'a%')"
    ),
    "n = o AND at > ts - interval '1' day and at < ts and upper(s) = u": (
        "(((l.n = r.o) AND (r.at > CAST(l.ts + (- INTERVAL '1' DAY) AS TIMESTAMP))) AND "
        "((r.at < l.ts) AND (upper(l.s) = r.u)))"
    ),
    "n = o AND unix_seconds(at) >= unix_seconds(ts) and at <= ts + make_dt_interval(0, 1) and at >= ts": (
        "(((l.n = r.o) AND (unix_seconds(r.at) >= unix_seconds(l.ts))) AND "
        "((r.at <= CAST(l.ts + make_dt_interval(0, 1, 0, 0.000000BD) AS TIMESTAMP)) AND (r.at >= l.ts)))"
    ),
}
"""Conditions of joins, in the same way."""


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT timestamp_seconds(id) AS ts, date'2026-01-01' AS d, id AS n, int(id) AS i, double(id) AS x, "
        "cast(id AS decimal(10,2)) AS dec, string(id) AS s, encode(string(id), 'utf-8') AS b, id % 2 = 0 AS f, "
        "array(1, 2) AS a, map('a', 1) AS m, named_struct('p', 1, 'q r', 'z') AS st, "
        "timestamp_ntz'2026-01-01 00:00:00' AS tn, interval '1' day AS dt, interval '1' month AS ym, "
        "parse_json('{\"a\":1}') AS v, 'x' COLLATE unicode AS cu, id AS `a b`, id AS `q``t` FROM range(3)"
    )


def test_aggregates_and_expressions(rows: DataFrame) -> None:
    columns = [F.expr(text).alias(f"r{number}") for number, text in enumerate(SPELLED)]
    found = sj.stream(rows).groupBy("i").agg(*columns)._stage.fingerprint["aggregates"]
    assert set(found) ^ set(SPELLED.values()) == set()


def test_what_sql_leaves_out_of_them(rows: DataFrame) -> None:
    compared = 0
    for text, expected in UNSAID.items():
        _, found = _told(rows, F.expr(text))
        # A class may have further fields on another line.
        both = found.keys() & expected.keys()
        compared += bool(both)
        assert {field: found[field] for field in both} == {field: expected[field] for field in both}, text
    # Fields that were called otherwise would all be left out.
    assert 2 * compared > len(UNSAID)


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=str)
def test_different_aggregates_have_different_fingerprints(
    rows: DataFrame, one: str | Column, other: str | Column
) -> None:
    first, second = (F.expr(each) if isinstance(each, str) else each for each in (one, other))
    (text, unsaid), (other_text, others) = (_told(rows, each) for each in (first, second))
    assert text != other_text or any(unsaid[field] != others[field] for field in unsaid.keys() & others.keys()), unsaid


def test_a_record_omits_how_rows_get_to_a_python_function(rows: DataFrame) -> None:
    """The default is another one from Spark 4.2 on, where a query from before would be refused."""
    found = [_told(rows, F.sum(F.udf(lambda n: n, "long", useArrow=arrow)("n"))) for arrow in (False, True)]
    assert found[0][1] == found[1][1]


def _told(rows: DataFrame, column: Column) -> tuple[object, dict[str, Any]]:
    """The text, and what it leaves out: by what it is of, without the number and the text of the aggregate."""
    stage = sj.stream(rows).groupBy("i").agg(column)._stage
    return stage.fingerprint["aggregates"], {what.rpartition(", ")[2]: value for what, value in stage.unsaid.items()}


def test_a_start_with_another_aggregate_that_is_written_alike_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def start(*columns: Column) -> StreamDriver:
        def query(stream: Any) -> Any:
            return stream.groupBy("k").agg(F.count("*").alias("c"), *columns)

        return StreamDriver(spark, query, "k string, n long", directory=tmp_path, outputMode="update")

    start(F.first("n").alias("f"), F.first("n", True).alias("g")).stop()
    start(F.first("n").alias("x"), F.first("n", True).alias("y")).stop()
    # The two are told apart, so that each finds its own state.
    driver = start(F.first("n", True).alias("f"), F.first("n").alias("g"))
    # Before the first epoch every change is free.
    driver.process([("a", 1)])
    driver.stop()
    with pytest.raises(sj.ChangedQueryError, match=r"stage0: aggregate first\(n\): kept → none: its columns go"):
        start(F.first("n").alias("f"), F.max("n"))


def test_conditions_of_joins(rows: DataFrame) -> None:
    left = sj.stream(rows).withWatermark("ts", "1 minute").alias("l")
    right = sj.stream(rows.selectExpr("ts AS at", "n AS o", "s AS u")).withWatermark("at", "1 minute").alias("r")
    found = {}
    for condition in CONDITIONS:
        stage = left.join(right, F.expr(condition), "left")._feed.parent
        assert stage is not None
        found[condition] = stage.fingerprint["on"]
    assert found == CONDITIONS
