"""Boat trips: functions with state, timers and timeouts, and windows of windows, as Spark computes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parameters import mostly_long
from tests.ported import boats
from tests.ported.ported_query import PortedQuery
from tests.ported.stateful_port import StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = boats.PORTS
ON_SPARK = {name: port for name, port in PORTS.items() if port.spark is not None}
# A function with timeouts; tests/stateful has the others, tests/differential windows of windows. That Spark's streams
# fire the same timers is in tests/stateful/functions/test_like_spark.py.
IN_CI = {"overdue-by-timeout"}


@pytest.mark.parametrize("port", mostly_long(PORTS, IN_CI))
def test_results_are_those_of_a_batch(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_batch()


@pytest.mark.parametrize("port", mostly_long(ON_SPARK, set()))
def test_results_are_those_of_spark(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_spark()
