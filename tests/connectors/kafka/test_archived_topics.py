"""A backfill over a topic whose history is a table without offsets: its commits say which records it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.api.test_backfill import Archived
from tests.sources.feed import options, send

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer


class InTopic(Archived):
    """The same stream as a topic."""

    def __init__(self, spark: SparkSession, home: Path, server: KafkaServer, source: str) -> None:
        super().__init__(spark, home)
        self.server, self.source, self.topic = server, source, server.topic(partitions=3)
        self.sent = {"0": 0, "1": 0, "2": 0}

    def extend(self, ends: dict[str, int]) -> None:
        """See :meth:`Archived.extend`."""
        for part, end in ends.items():
            messages = [json.dumps([1000 + n - 120 * int(part), n % 7]).encode() for n in range(self.sent[part], end)]
            send(self.server, self.topic, *messages, partition=int(part))
            self.sent[part] = end

    def live(self, first: str = "") -> DataFrame:
        """The records, with the names that the other stream has."""
        del first  # the topic keeps all
        given = options(self.server, subscribe=self.topic, startingOffsets="earliest")
        rows = self.spark.readStream.format(self.source).options(**given).load()
        row = F.from_json(F.col("value").cast("string"), "array<bigint>")
        named = rows.select(F.timestamp_seconds(row[0]).alias("ts"), "partition", "offset", row[1].alias("v"))
        return named.withColumnRenamed("partition", "part")


@pytest.mark.long
def test_a_topic_goes_on_where_its_archive_ends(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> None:
    sj.register_sources(spark)
    # The same with Spark's own source was tried by hand: its package is not among those of tests.
    InTopic(spark, tmp_path, kafka, "sparkjet-kafka").check()
