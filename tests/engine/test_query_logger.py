from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkjet as sj
from sparkjet.engine.query_logger import QueryLogger


def test_a_line_names_its_query(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparkjet"):
        QueryLogger("100% of clicks").info("epoch %d", 7)
        QueryLogger("100% of clicks").info("it has ended")
        QueryLogger().info("epoch %d", 8)
    assert caplog.messages == ["query 100% of clicks: epoch 7", "query 100% of clicks: it has ended", "epoch 8"]


@pytest.mark.parametrize("name", ["clicks", None])
def test_a_query_without_a_name_is_named_by_its_home(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema("ts timestamp, p string").json(str(tmp_path / "in"))
    counts = sj.stream(source).withWatermark("ts", "1 minute", by="p").groupBy(sj.window("ts", "1 minute")).count()
    writer = counts.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "home"))
    with caplog.at_level(logging.WARNING, "sparkjet"):
        query = (writer if name is None else writer.queryName(name)).trigger(availableNow=True).start()
    query.awaitTermination()
    said = [message for message in caplog.messages if "not waited for" in message]
    assert said[0].startswith(f"query {name or tmp_path / 'home'}: substreams by p are not waited for")
    assert repr(query) == f"StreamingQuery[name: {name}, id: {query.id}, runId: {query.runId}, ended]"
    assert repr(counts) == "WindowedStream[window: struct<start:timestamp,end:timestamp>, count: bigint]"
