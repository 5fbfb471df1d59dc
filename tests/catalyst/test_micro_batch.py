"""Micro-batches with their plan: the same rows as Spark's, one loop of code, and progress that still counts them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from sparkjet.catalyst.micro_batch import with_plan
from sparkjet.catalyst.physical_plans import PLANNED

pytestmark = pytest.mark.spark

Shape = Callable[[DataFrame], DataFrame]
TAKEN = 60


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of the numbers up to 40, in two files, one in each batch."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    for number in range(2):
        numbers = session.range(20 * number, 20 * number + 20, 1, 1)
        numbers.write.parquet(str(tmp_path / "in"), mode="append")
    return session.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))


def taken(stream: DataFrame, home: Path, look: Callable[[DataFrame, DataFrame], Any]) -> list[dict[str, Any]]:
    """Call ``look`` with each batch, as Spark gives it and with its plan; returns Spark's progress of the batches."""
    started: Future[StreamingQuery] = Future()

    def run(batch: DataFrame, _: int) -> None:
        look(batch, with_plan(batch, started.result(TAKEN)))

    writer = stream.writeStream.foreachBatch(run).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    started.set_result(query)
    assert query.awaitTermination(TAKEN)
    return [dict(progress) for progress in query.recentProgress]


def doubled(rows: DataFrame) -> DataFrame:
    """A filter, a projection and a generator: what becomes part of the plan."""
    each = rows.where("id % 3 = 0").select(F.explode(F.array("id", F.col("id") + 1)).alias("n"))
    return each.select("n", (F.col("n") * 2).alias("twice"))


def counted(rows: DataFrame) -> DataFrame:
    """A projection over a shuffle, which stays below the table."""
    return rows.repartition(3).select((F.col("id") + 1).alias("n"))


def as_python(rows: DataFrame) -> DataFrame:
    """A filter above what a Python process computes."""
    return rows.mapInArrow(lambda batches: batches, "id long").where("id > 3").select((F.col("id") * 5).alias("n"))


@pytest.mark.parametrize("shape", [doubled, counted, as_python])
def test_the_rows_are_those_of_the_batch(source: DataFrame, tmp_path: Path, shape: Shape) -> None:
    seen: list[tuple[Any, ...]] = []

    def look(plain: DataFrame, batch: DataFrame) -> None:
        assert batch.schema == plain.schema
        assert batch._jdf.queryExecution().logical().getClass().getSimpleName() == PLANNED
        rows = sorted(map(tuple, batch.collect()))
        assert rows == sorted(map(tuple, plain.collect()))
        assert batch.where("n % 2 = 0").count() == sum(row[0] % 2 == 0 for row in rows)
        seen.extend(rows)

    taken(shape(source), tmp_path, look)
    expected = shape(source.sparkSession.read.parquet(str(tmp_path / "in")))
    assert sorted(seen) == sorted(map(tuple, expected.collect()))


def test_progress_counts_each_row_of_the_source_once(source: DataFrame, tmp_path: Path) -> None:
    progress = taken(doubled(source), tmp_path, lambda _, batch: batch.count())
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [20] * 2


def test_a_batch_without_operators_is_left_as_it_is(source: DataFrame, tmp_path: Path) -> None:
    same: list[bool] = []
    taken(source, tmp_path, lambda plain, batch: same.append(batch is plain))
    assert same == [True] * 2


def test_the_time_of_the_batch_is_left_to_spark(source: DataFrame, tmp_path: Path) -> None:
    same: list[bool] = []
    timed = source.select((F.col("id") + 1).alias("n"), F.current_timestamp().alias("now"))
    taken(timed, tmp_path, lambda plain, batch: same.append(batch is plain))
    assert same == [True] * 2
