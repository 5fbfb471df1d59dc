"""The registration of sources: what is there, and what a source says whose extra is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import sparkjet as sj
from sparkjet import sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.crash
def test_a_source_without_its_extra_says_what_to_install(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name == "pika" else name)
    sj.register_sources(spark)
    try:
        with pytest.raises(AnalysisException, match=r"this Python has no pika\. Install pika and pyarrow there"):
            spark.readStream.format("sparkjet-rabbitmq").option("queues", "orders").load()
    finally:
        monkeypatch.undo()
        sj.register_sources(spark)
    assert spark.readStream.format("sparkjet-rabbitmq").option("queues", "orders").load().columns[0] == "body"
