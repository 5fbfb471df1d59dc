"""Recorded batches have the rows that Spark's own query has given for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkjet.catalyst.recorded_batches import RecordedSources
from sparkjet.engine.spark_checkpoint import SparkCheckpoint
from sparkjet.errors import RecoveryError, SourceError
from tests.counting import counting
from tests.feed import Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interpreted

COMPACTED = "spark.sql.streaming.fileSource.log.compactInterval"


class Batches:
    """The batches that Spark's own query has passed to ``foreachBatch``, and where each began and ended."""

    def __init__(self, source: DataFrame, place: Path) -> None:
        self.checkpoint = place / "checkpoint"
        self.rows: list[list[Any]] = []
        self.offsets: list[list[str]] = []

        def take(batch: DataFrame, number: int) -> None:
            self.rows.append(sorted(map(str, batch.collect())))
            log = SparkCheckpoint(self.checkpoint).end_offsets(number)
            self.offsets.append([log[key] for key in sorted(log)])

        writer = source.writeStream.foreachBatch(take).option("checkpointLocation", f"file:{self.checkpoint}")
        query = writer.start()
        query.processAllAvailable()
        query.stop()


@pytest.mark.crash
@pytest.mark.interpreted
def test_batches_are_those_of_sparks_own_query(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    for number in range(5):
        feed.add(*rows([number], k="a b", v=number))
    # Four make Spark's log of files compact itself.
    spark.conf.set(COMPACTED, "4")
    spark.dataSource.register(counting([3, 5]))
    files = feed.read(spark).select("id", F.col("_metadata.file_name").alias("file"), F.current_timestamp().alias("at"))
    counted = spark.readStream.format("counting").load()
    numbers = counted.select("id", F.lit("n").alias("file"), F.to_timestamp(F.current_date()).alias("at"))
    source = files.union(numbers).union(files.where("id > 3")).where("id <> 2")
    # A plan that is not a chain of projections and filters.
    source = source.join(spark.range(20).withColumnRenamed("id", "other"), F.col("id") + 5 == F.col("other"), "left")
    spark_own = Batches(source, tmp_path)
    spark.conf.unset(COMPACTED)
    assert len(spark_own.rows) > 4
    opened = RecordedSources(spark, source, (), spark_own.checkpoint)
    offsets, starts = spark_own.offsets, [[], *spark_own.offsets]
    log = SparkCheckpoint(spark_own.checkpoint)
    # In any order: the last ones stand in files that Spark has made of others since.
    for number in (len(offsets) - 1, 2, 0):
        batch = opened.batch(starts[number], offsets[number], f"q/{number}", planned_at(log, number))
        assert not batch.isStreaming
        assert sorted(map(str, batch.collect())) == spark_own.rows[number]
    with pytest.raises(RecoveryError, match="the query reads 3 sources, and its records have offsets of 4"):
        opened.batch([], [*offsets[0], "-"], "q/0", 0)
    gone = next((tmp_path / "in").glob("00003.json"))
    gone.unlink()
    with pytest.raises(SourceError, match=r"1 files that FileSource\[.*\] has read are gone, such as .*00003\.json"):
        opened.batch([], offsets[-1], "q/0", 0)
    opened.batch([], offsets[2], "q/0", 0)
    opened.close()
    opened.close()


def planned_at(checkpoint: SparkCheckpoint, number: int) -> int:
    text = (checkpoint.directory / "offsets" / str(number)).read_text()
    return int(text.partition('"batchTimestampMs":')[2].partition(",")[0]) * 1000
