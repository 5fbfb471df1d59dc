from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet import functions as J
from sparkjet.plan.worker_packages import worker_packages
from sparkjet.testing import CollectingSink, StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW = {"pyarrow": "pyarrow"}


def total() -> sj.Aggregate:
    return sj.python_aggregate(
        "n", accumulatorType="long", returnType="long", create=int, accumulate=int.__add__, combine=int.__add__,
        finish=int,
    )  # fmt: skip


class WithPackages(CollectingSink):
    packages = {"psycopg": "psycopg[binary]"}  # noqa: RUF012 - read only


@pytest.mark.parametrize(
    ("agg", "sink", "needed"),
    [
        (J.top_n("n", 2), CollectingSink(), {}),
        (J.top_n("n", 2), WithPackages(), {"psycopg": "psycopg[binary]"}),
        (total(), CollectingSink(), ARROW),
        (total(), WithPackages(), {**ARROW, "psycopg": "psycopg[binary]"}),
    ],
    ids=["columns", "sink", "Python", "both"],
)
def test_what_aggregates_and_sinks_need(spark: SparkSession, agg: Any, sink: Any, needed: dict[str, str]) -> None:
    def query(rows: sj.Stream) -> Any:
        return rows.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds")).agg(agg.alias("x"))

    driver = StreamDriver(spark, query, "ts timestamp, n long", sinks=[sink])
    assert worker_packages(driver.plan) == needed
