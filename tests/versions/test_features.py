"""Features that an older line of Spark lacks are refused by name before the start, or done in a slower way."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.spark_line import LINE, LINE_NAME
from tests.lines import needs_sketches

SOURCES = ("sparkjet-kafka", "sparkjet-files", "sparkjet-rabbitmq", "sparkjet-artemis", "sparkjet-grid-journal")


@pytest.mark.skipif(LINE >= (4, 2), reason="since Spark 4.2, sources in Python limit what they read")
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_could_not_limit_what_it_reads_is_refused(spark: SparkSession, source: str) -> None:
    sj.register_sources(spark)
    with pytest.raises(PySparkException, match=rf'format\("{source}"\) needs Spark 4\.2 or later; this is {LINE_NAME}'):
        spark.readStream.format(source).load()


@pytest.mark.skipif(LINE >= (4, 1), reason="since Spark 4.1, there are functions over Arrow's arrays")
def test_an_aggregate_in_python_is_refused() -> None:
    with pytest.raises(sj.AnalysisError, match=r"aggregates in Python need Spark 4\.1 or later; this is 4\.0"):
        sj.python_aggregate(
            "v",
            accumulatorType="long",
            returnType="long",
            create=lambda: 0,
            accumulate=lambda total, value: total + value,
            combine=lambda one, other: one + other,
            finish=lambda total: total,
        )


@pytest.mark.skipif(LINE >= (4, 1), reason="since Spark 4.1, there are sketches of quantiles")
def test_approximate_quantiles_are_refused(spark: SparkSession) -> None:
    rows = sj.stream(spark.sql("SELECT now() AS t, 1 AS v")).withWatermark("t", "0 seconds")
    with pytest.raises(
        sj.AnalysisError, match=r"sketches need Spark 4\.1 or later; this is 4\.0\. percentile_disc is exact"
    ):
        rows.groupBy(F.window("t", "20 seconds")).agg(F.percentile_approx("v", 0.5))


@needs_sketches
def test_sketches_of_several_parts_are_united(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(id) AS t, IF(id % 2 = 0, id, NULL) AS v FROM range(0, 40)")
    windows = sj.stream(rows).withWatermark("t", "0 seconds").groupBy(F.window("t", "20 seconds", "5 seconds"))
    found = windows.agg(F.percentile_approx("v", 0.5).alias("p")).toDF().orderBy("window").collect()
    assert [row.p for row in found] == [2, 4, 6, 8, 14, 18, 24, 28, 32, 34, 36]


def test_the_greatest_and_least_values_are_the_same_on_all_lines(spark: SparkSession) -> None:
    rows = spark.sql("SELECT IF(id % 4 = 0, NULL, id * 7 % 10) AS v, id FROM range(0, 10)")
    values = [number * 7 % 10 for number in range(10) if number % 4]
    assert J.top_n("v", 3).evaluate(rows) == sorted(values, reverse=True)[:3]
    assert J.bottom_n("v", 3).evaluate(rows) == sorted(values)[:3]


def test_bytes_delimit_bytes_on_all_lines(spark: SparkSession) -> None:
    rows = sj.stream(spark.sql("SELECT cast(cast(id AS string) AS binary) AS b FROM range(0, 3)"))
    (found,) = rows.agg(F.listagg("b", b"+").alias("listed")).toDF().collect()
    assert bytes(found.listed) == b"0+1+2"
