"""Queries with state from PySpark's own texts, as Spark computes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.testing import StreamDriver
from tests.parameters import mostly_long
from tests.ported import installed_state
from tests.ported.ported_query import PortedQuery
from tests.ported.stateful_port import StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = installed_state.PORTS
ON_SPARK = {name: port for name, port in PORTS.items() if port.spark is not None}
# An aggregate in update mode, one without keys in complete mode, and duplicates forever; those within the watermark
# are beside Spark's stream below. Other aggregates are in tests/aggregates/test_spark_functions.py, PySpark's own
# functions with state in tests/stateful/functions/test_like_spark.py.
IN_CI = {"network_wordcount-update", "groupBy-nothing", "dropDuplicates"}


@pytest.mark.parametrize("port", mostly_long(PORTS, IN_CI))
def test_results_are_those_of_a_batch(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_batch()


@pytest.mark.parametrize("port", mostly_long(ON_SPARK, {"dropDuplicatesWithinWatermark"}))
def test_results_are_those_of_spark(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_spark()


@pytest.mark.long
def test_a_session_of_words_ends_after_ten_seconds_without_the_word(spark: SparkSession) -> None:
    """A timeout in processing time."""
    driver = StreamDriver(spark, installed_state.sessions_of_words, "timestamp timestamp, value string")
    driver.process([("2026-01-01 12:00:00", "left or right or left")])
    driver.advance("6 seconds")
    driver.process([("2026-01-01 12:00:06", "left again")])
    assert driver.results() == []
    driver.advance("5 seconds")
    first = [(row.sessionId, row["count"], row.end.second) for row in driver.results()]
    assert sorted(first) == [("or", 2, 0), ("right", 1, 0)]
    driver.restart()
    driver.advance("6 seconds")
    later = [(row.sessionId, row["count"], row.end.second) for row in driver.results()][2:]
    assert sorted(later) == [("again", 1, 6), ("left", 3, 6)]
