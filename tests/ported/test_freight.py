"""A freight exchange's joins and reports, as Spark computes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ported import freight_queries
from tests.ported.ported_query import PortedQuery
from tests.ported.stateful_port import StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In CI, unbounded joins and functions behind joins are in test_differences_of_state.py, and the rest in test_boats.py,
# tests/engine/test_interval_joins.py and tests/aggregates/test_spark_functions.py.
pytestmark = pytest.mark.long

PORTS = freight_queries.PORTS
ON_SPARK = {name: port for name, port in PORTS.items() if port.spark is not None}


@pytest.mark.parametrize("port", PORTS.values(), ids=PORTS)
def test_results_are_those_of_a_batch(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_batch()


@pytest.mark.parametrize("port", ON_SPARK.values(), ids=ON_SPARK)
def test_results_are_those_of_spark(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_spark()
