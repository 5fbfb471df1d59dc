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
