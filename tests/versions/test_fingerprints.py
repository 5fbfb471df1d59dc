"""What identifies a query in its records is spelled in the same way on all lines of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPELLED = dict(line.split("\t") for line in Path(__file__).with_name("fingerprints.tsv").read_text().splitlines())
"""Aggregates as users write them, and as a record has them, on every line."""


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


def test_conditions_of_joins(rows: DataFrame) -> None:
    left = sj.stream(rows).withWatermark("ts", "1 minute").alias("l")
    right = sj.stream(rows.selectExpr("ts AS at", "n AS o", "s AS u")).withWatermark("at", "1 minute").alias("r")
    found = {}
    for condition in CONDITIONS:
        stage = left.join(right, F.expr(condition), "left")._feed.parent
        assert stage is not None
        found[condition] = stage.fingerprint["on"]
    assert found == CONDITIONS
