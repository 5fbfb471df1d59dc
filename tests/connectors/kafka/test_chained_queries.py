"""Two queries over a topic: the second has the watermark that the first has told, and both equal Spark's batch."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.options import Options
from sparkjet.testing import StreamDriver
from tests.connectors.grid.chained import SCHEMA, at, both_in_batch, per_hour, per_ten_minutes
from tests.connectors.kafka.test_staged import sink_of
from tests.protocol.kafka.checks import committed
from tests.sources.feed import options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Sink
    from tests.servers.kafka import KafkaServer

ROW = "ts timestamp, k string, n long, v long"
HOUR = 3_600_000_000


def first_query(rows: sj.Stream) -> Any:
    """The results that the first one writes into the topic."""
    row = F.to_json(F.struct("ts", "k", "n", "v"), {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"})
    return per_ten_minutes(rows).select(F.col("k").alias("key"), row.alias("value"))


def second_rows(topic: DataFrame) -> DataFrame:
    """The topic as the second reads it."""
    parsed = F.from_json(F.col("value").cast("string"), ROW, {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS"})
    return topic.select(parsed.alias("row"), "topic", "partition").select("row.*", "topic", "partition")


def prepared_sink_of(spark: SparkSession, kafka: KafkaServer, _: Path, **given: str) -> KafkaSink:
    """Of prepared transactions."""
    sink = KafkaSink(KafkaSettings.of(Options(options(kafka, **given))))
    sink.check(spark.createDataFrame([], "key string, value string").schema)
    sink.create()
    return sink


@pytest.mark.parametrize(
    ("written_by", "length", "limit"),
    [
        (sink_of, 300, None),
        pytest.param(prepared_sink_of, 300, None, marks=pytest.mark.long),
        pytest.param(sink_of, 150, "3", marks=pytest.mark.long),
        pytest.param(prepared_sink_of, 150, "3", marks=pytest.mark.long),
    ],
)
def test_the_second_query_needs_no_lag_and_no_row_is_late(
    spark: SparkSession,
    kafka: KafkaServer,
    tmp_path: Path,
    written_by: Callable[..., Sink],
    length: int,
    limit: str | None,
) -> None:
    sj.register_sources(spark)
    topic, progress = kafka.topic(partitions=3), f"progress-{kafka.topic(partitions=1)}"
    sink = written_by(spark, kafka, tmp_path / "box", topic=topic, progressTopic=progress, progressInterval="1s")
    first = StreamDriver(spark, first_query, SCHEMA, sinks=[sink], directory=tmp_path / "first")
    given = {"subscribe": topic, "startingOffsets": "earliest", "progressTopic": progress}
    if limit is not None:
        given["maxOffsetsPerTrigger"] = limit

    def run() -> dict[str, Any]:
        rows = spark.readStream.format("sparkjet-kafka").options(**options(kafka, **given)).load()
        writer = per_hour(second_rows(rows)).writeStream.format("files").option("path", tmp_path / "out")
        query = writer.option("checkpointLocation", tmp_path / "home").trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        found: dict[str, Any] = query.lastProgress
        return found

    def told() -> list[dict[str, Any]]:
        found = [json.loads(message.value()) for message in committed(kafka, progress)]
        return [each for each in found if "watermark" in each]

    def written() -> Counter[tuple[Any, ...]]:
        return Counter(
            map(tuple, sj.read_files(str(tmp_path / "out")).select("hour", "k", "n", "v", "windows").collect())
        )

    chance, sent = random.Random(7), []
    for start in range(0, 300, length):
        batch = [(at(start + chance.uniform(0, length)), chance.choice("ab"), chance.randint(1, 9)) for _ in range(30)]
        sent += sorted(batch)
        first.process(sorted(batch))
        found, newest = run(), told()[-1]["watermark"]
        # Two keys: a partition never has a row, and holds nothing back.
        assert {each["watermark"] for each in found["substreams"].values()} == {newest}
        assert found["substreams"].keys() == {f"{topic}/{number}" for number in range(3)}
        assert found["watermark"] == newest - newest % HOUR
        assert found["lateRows"]["total"] == 0
    # An epoch without rows: a marker alone, with the ends that the topic had.
    nobody = [(at(500), "nobody", 1), (at(650), "nobody", 1)]
    first.process(nobody[:1])
    before, last, rows = written().total(), told()[-1], len(committed(kafka, topic))
    first.process(nobody[1:])
    assert told()[-1] == last
    first.stop()
    assert told()[-1]["watermark"] == last["watermark"] + 150 * 60_000_000
    assert len(committed(kafka, topic)) == rows
    place = f"kafka://{options(kafka)['kafka.bootstrap.servers']}/{topic}"
    known = sj.complete_until(place, progress_topics=[progress])
    assert [each.until for each in known.writers] == [
        datetime.fromtimestamp(told()[-1]["watermark"] / 10**6, timezone.utc)
    ]
    assert sj.complete_until(f"{place}-other", progress_topics=[progress]).writers == ()
    run()
    everything = spark.createDataFrame([*sent, *nobody], "ts string, k string, v long")
    assert written() == both_in_batch(everything.withColumn("ts", F.to_timestamp("ts")))
    assert written().total() > before
