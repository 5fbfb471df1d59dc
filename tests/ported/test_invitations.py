"""Invitations and tickets: joins in time and with a table, and duplicates, as Spark computes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.parameters import mostly_long
from tests.ported import invitations
from tests.ported.ported_query import PortedQuery
from tests.ported.stateful_port import StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = invitations.PORTS
ON_SPARK = {name: port for name, port in PORTS.items() if port.spark is not None}
# Semi and static joins. The other joins and windows behind them are in tests/engine/test_interval_joins.py and
# tests/differential, duplicates in test_installed_state.py.
IN_CI = {"join-semi", "static-left"}


@pytest.mark.parametrize("port", mostly_long(PORTS, IN_CI))
def test_results_are_those_of_a_batch(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_batch()


@pytest.mark.parametrize("port", mostly_long(ON_SPARK, set()))
def test_results_are_those_of_spark(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    PortedQuery(spark, port, tmp_path).check_spark()
