"""Public queries with state: one changed line for each input, and what Spark computes of the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.testing import StreamDriver
from tests.ported import flink_training, nexmark_queries, spark_guide, spark_stateful
from tests.ported.both import Both
from tests.ported.stateful_port import Input, StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

FAMILIES = {"nexmark": nexmark_queries, "flink": flink_training, "guide": spark_guide, "pyspark": spark_stateful}
PORTS: dict[str, StatefulPort] = {
    f"{family}-{name}": port for family, module in FAMILIES.items() for name, port in module.PORTS.items()
}
ON_SPARK = {name: port for name, port in PORTS.items() if port.spark is not None}
STORE = "spark.sql.streaming.stateStore.providerClass"


class PortedQuery:
    """A query over files, one for each micro-batch of each input."""

    def __init__(self, spark: SparkSession, port: StatefulPort, directory: Path) -> None:
        self._spark = spark
        self._port = port
        self._tables = [spark.createDataFrame(list(each.rows), each.schema) for each in port.tables]
        self._inputs = [self._arrived(each, each.batches, directory / f"{n}") for n, each in enumerate(port.inputs)]
        self._on_time = [
            self._arrived(each, each.on_time or each.batches, directory / f"{n}-on-time")
            for n, each in enumerate(port.inputs)
        ]

    def expected(self) -> Counter[str]:
        """What must come out: naively, or by Spark in a batch."""
        if self._port.expected is not None:
            rows = self._port.expected(*([row for batch in each.rows() for row in batch] for each in self._port.inputs))
            return bag(rows)
        rows = self._port.query(*(each.whole() for each in self._inputs), *self._tables)
        return bag(rows.collect())

    def sparkjet(self, **options: object) -> list[Row]:
        """What the query gives here."""
        streams = [
            each.ported(sj.stream(source.source()))
            for each, source in zip(self._port.inputs, self._inputs, strict=True)
        ]
        return self._run(self._port.query(*streams, *self._tables), **options)

    def spark(self) -> list[Row]:
        """What it gives as a streaming query of Spark's, without a lagging partition."""
        sources = [
            each.watermarked(source.source()) for each, source in zip(self._port.inputs, self._on_time, strict=True)
        ]
        # transformWithState runs on no other store.
        self._spark.conf.set(STORE, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        try:
            return self._run(self._port.query(*sources, *self._tables))
        finally:
            self._spark.conf.unset(STORE)

    def _arrived(self, each: Input, batches: Any, directory: Path) -> Both:
        directory.mkdir(parents=True)
        return Both(self._spark, directory, each.schema).arrive(*each.rows(batches))

    def _run(self, rows: Any, **options: object) -> list[Row]:
        batches: dict[int, list[Row]] = {}

        def collect(batch: DataFrame, number: int) -> None:
            batches[number] = batch.collect()

        writer = rows.writeStream.outputMode(self._port.mode).options(**options).foreachBatch(collect)
        writer.trigger(availableNow=True).start().awaitTermination()
        in_order = [batches[number] for number in sorted(batches)]
        if self._port.mode == "complete":
            return in_order[-1]
        found = [row for batch in in_order for row in batch]
        return found if self._port.mode == "append" else newest(found, self._port.keys)


def newest(rows: Iterable[Row], keys: Sequence[str]) -> list[Row]:
    """The newest row of each key."""
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def bag(rows: Iterable[Sequence[Any]]) -> Counter[str]:
    """The rows in whatever order."""
    return Counter(repr(tuple(row)) for row in rows)


@pytest.mark.parametrize("port", PORTS.values(), ids=PORTS)
def test_results_are_those_of_a_batch(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    query = PortedQuery(spark, port, tmp_path)
    expected = query.expected()
    assert expected
    assert bag(query.sparkjet(**({"closeWindowsAtEnd": True} if port.closing else {}))) == expected


@pytest.mark.parametrize("port", ON_SPARK.values(), ids=ON_SPARK)
def test_results_are_those_of_spark(spark: SparkSession, port: StatefulPort, tmp_path: Path) -> None:
    query = PortedQuery(spark, port, tmp_path)
    theirs, expected = bag(query.spark()), query.expected()
    assert theirs
    if port.spark == "same":
        assert theirs == expected
    assert theirs <= expected


def test_a_session_of_words_ends_after_ten_seconds_without_the_word(spark: SparkSession) -> None:
    """Of structured_network_wordcount_session_window.py: a timeout in processing time."""
    driver = StreamDriver(spark, spark_stateful.sessions_of_words, "timestamp timestamp, value string")
    driver.process([("2026-01-01 12:00:00", "to be or not to be")])
    driver.advance("6 seconds")
    driver.process([("2026-01-01 12:00:06", "to dream")])
    assert driver.results() == []
    driver.advance("5 seconds")
    first = [(row.sessionId, row["count"], row.end.second) for row in driver.results()]
    assert sorted(first) == [("be", 2, 0), ("not", 1, 0), ("or", 1, 0)]
    driver.restart()
    driver.advance("6 seconds")
    later = [(row.sessionId, row["count"], row.end.second) for row in driver.results()][3:]
    assert sorted(later) == [("dream", 1, 6), ("to", 3, 6)]
