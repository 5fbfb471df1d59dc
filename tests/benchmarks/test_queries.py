"""The queries of the works can be built, in both dialects of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.peers import spark as peer
from benchmarks.peers.micro_batches import results
from benchmarks.peers.sparkjet import dialect
from benchmarks.work import WORKS, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.id)
def test_a_work_is_a_query_of_both(spark: SparkSession, work: Work) -> None:
    ours, theirs = (results(spark, work, each) for each in (dialect(work), peer.DIALECT))
    assert ours.columns == theirs.columns
