"""A query with state, run by sparkjet, by Spark's streams and by Spark's batch over the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkjet as sj
from tests.ported.both import Both
from tests.ported.stateful_port import Input, StatefulPort

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

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

    def check_batch(self) -> None:
        """The results are those of a batch."""
        expected = self._expected()
        assert expected
        assert bag(self._sparkjet(**({"closeWindowsAtEnd": True} if self._port.closing else {}))) == expected

    def check_spark(self) -> None:
        """The results of Spark's streams are those of a batch too, or as many of them as Spark closes."""
        theirs, expected = bag(self._spark_streams()), self._expected()
        assert theirs
        if self._port.spark == "same":
            assert theirs == expected
        assert theirs <= expected

    def _expected(self) -> Counter[str]:
        """The expected result: computed naively, or by Spark in a batch."""
        if self._port.expected is not None:
            rows = self._port.expected(*([row for batch in each.rows() for row in batch] for each in self._port.inputs))
            return bag(rows)
        rows = self._port.query(*(each.whole() for each in self._inputs), *self._tables)
        return bag(rows.collect())

    def _sparkjet(self, **options: object) -> list[Row]:
        """The result of the query with sparkjet."""
        streams = [
            each.ported(sj.stream(source.source()))
            for each, source in zip(self._port.inputs, self._inputs, strict=True)
        ]
        return self._run(self._port.query(*streams, *self._tables), **options)

    def _spark_streams(self) -> list[Row]:
        """Its result as a streaming query of Spark's, without a lagging partition."""
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
