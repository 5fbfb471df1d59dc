"""Homes that another line of Spark has left: a query goes on from each, and nothing is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from sparkjet.snapshots.record import FORMAT
from sparkjet.spark_line import LINE
from tests.snapshots.homes import operators, shops
from tests.snapshots.homes.archives import HOMES, archive, unpack
from tests.snapshots.homes.shops import BATCHES, PAUSE, START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST, NEWEST = HOMES / "spark-4.0", HOMES / f"format-{FORMAT}"
"""Of Spark 4.0, and of the newest line."""
FROM = OLDEST if LINE >= (4, 2) else NEWEST


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        # In CI on the oldest line. On the newest, `snapshots/test_homes.py` goes on from homes of earlier formats, with
        # other operators and decided epochs.
        pytest.param(operators, "stopped", marks=pytest.mark.long if LINE >= (4, 2) else ()),
        pytest.param(shops, "stopped", marks=pytest.mark.long if LINE >= (4, 2) else pytest.mark.crash),
        pytest.param(shops, "decided", marks=pytest.mark.long if LINE >= (4, 2) else pytest.mark.crash),
    ],
    ids=["operators", "windows", "crashed windows"],
)
def test_a_query_goes_on_from_a_home_of_another_line(
    spark: SparkSession, query: ModuleType, kind: str, tmp_path: Path
) -> None:
    name = query.__name__.rpartition(".")[2]
    unpack(FROM / archive(name, kind), tmp_path)
    query.arrive(tmp_path, range(BATCHES))
    first, *others = query.outputs(spark, tmp_path, sj.ManualClock(START + BATCHES * PAUSE))
    sj.start(first.option("closeWindowsAtEnd", True).trigger(availableNow=True), *others).awaitTermination()
    assert query.found(spark, tmp_path) == query.expected()
