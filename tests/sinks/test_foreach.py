"""foreach and foreachBatch: Spark's contract of a writer's object, and what a function may know of a repetition."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.errors import AnalysisError
from sparkjet.sinks.foreach import ForeachSink
from sparkjet.sinks.foreach_batch import EpochInfo, ForeachBatchSink
from sparkjet.testing.sink_contract import QUERY, SCHEMA, transaction
from sparkjet.testing.stream_driver import StreamDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [("a", 1), ("b", 2), ("c", 3)]


class Noting:
    """Notes its calls in a directory, one file a task."""

    def __init__(self, directory: Path, *, fails: bool = False, skips: bool = False) -> None:
        self.directory, self.fails, self.skips = directory, fails, skips

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.calls: list[Any] = [["open", epoch_id]]
        self.partition = partition_id
        return not self.skips

    def process(self, row: Any) -> None:
        self.calls.append(["process", *row])
        if self.fails:
            raise ConnectionError("the database is away")

    def close(self, error: Exception | None) -> None:
        self.calls.append(["close", None if error is None else str(error)])
        (self.directory / f"{self.partition}.json").write_text(json.dumps(self.calls))


def noted(directory: Path) -> list[Any]:
    return [json.loads(file.read_text()) for file in sorted(directory.glob("*.json"))]


def prepared(spark: SparkSession, sink: ForeachSink | ForeachBatchSink, home: Path, epoch: int = 4) -> Any:
    sink.attach(home / "outbox", spark)
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    handle = sink.prepare(spark.createDataFrame(ROWS, SCHEMA).coalesce(1), transaction(epoch))
    assert handle is not None
    return handle


# In CI, `ported/test_ported.py` gives objects to `foreach`.
@pytest.mark.long
def test_an_object_is_called_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("in", "sparks", "ours"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(json.dumps({"k": k, "n": n}) for k, n in ROWS))
    source = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    query = source.writeStream.foreach(Noting(tmp_path / "sparks")).trigger(availableNow=True).start()
    query.awaitTermination()
    sink = ForeachSink(Noting(tmp_path / "ours"))
    sink.commit(prepared(spark, sink, tmp_path, epoch=0), lambda: None)
    assert noted(tmp_path / "ours") == noted(tmp_path / "sparks")
    assert noted(tmp_path / "ours") == [[["open", 0], *(["process", *row] for row in ROWS), ["close", None]]]


def test_a_partition_is_skipped_where_open_says_so(spark: SparkSession, tmp_path: Path) -> None:
    sink = ForeachSink(Noting(tmp_path, skips=True))
    sink.commit(prepared(spark, sink, tmp_path), lambda: None)
    assert noted(tmp_path) == [[["open", 4], ["close", None]]]


@pytest.mark.logs_errors
def test_a_failure_closes_the_object_and_leaves_the_epoch_to_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    sink = ForeachSink(Noting(tmp_path, fails=True))
    handle = prepared(spark, sink, tmp_path)
    with pytest.raises(Exception, match="the database is away"):
        sink.commit(handle, lambda: None)
    assert noted(tmp_path) == [[["open", 4], ["process", "a", 1], ["close", "the database is away"]]]
    again = ForeachSink(lambda row: (tmp_path / f"again-{row.k}").write_text(str(row.n)))
    again.attach(tmp_path / "outbox", spark)
    for _ in range(2):
        again.commit(handle, lambda: None)
    assert {path.name for path in tmp_path.glob("again-*")} == {"again-a", "again-b", "again-c"}


def test_what_cannot_be_sent_to_executors_is_refused(spark: SparkSession) -> None:
    holding = Noting(Path())
    holding.partition = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(AnalysisError, match=r"the Noting cannot be sent .*Create what cannot be pickled.* in open"):
        ForeachSink(holding).check(spark.createDataFrame([], SCHEMA).schema)
    with pytest.raises(AnalysisError, match=r"the function cannot be sent .*SparkContext|CONTEXT_ONLY_VALID"):
        ForeachSink(lambda row: spark.range(1)).check(spark.createDataFrame([], SCHEMA).schema)


def test_a_function_may_know_that_it_is_called_again(spark: SparkSession, tmp_path: Path) -> None:
    told: list[EpochInfo] = []

    def store(rows: DataFrame, epoch: int, info: EpochInfo) -> None:
        told.append(info)
        if len(told) == 1:
            raise ConnectionError("the database is away")

    sink = ForeachBatchSink(store)
    handle = prepared(spark, sink, tmp_path)
    with pytest.raises(ConnectionError):
        sink.commit(handle, lambda: None)
    sink.commit(handle, lambda: None)
    assert told == [EpochInfo(QUERY, 4, repeated, "results") for repeated in (False, True)]


def test_a_restart_repeats_what_was_decided_and_says_so(spark: SparkSession) -> None:
    told: list[tuple[EpochInfo, int]] = []
    sink = ForeachBatchSink(lambda rows, epoch, info: told.append((info, rows.count())))
    driver = StreamDriver(
        spark,
        lambda rows: rows.withWatermark("ts", 0).groupBy(sj.window("ts", "10 seconds")).count(),
        "ts timestamp",
        sinks=[sink],
    )
    driver.process([("2026-01-01 12:00:01",), ("2026-01-01 12:00:11",)])
    with driver.crash(at=sj.EpochPhase.DECIDE):
        driver.process([("2026-01-01 12:00:21",)])
    driver.restart()
    driver.process([("2026-01-01 12:00:31",)])
    infos = [info for info, _ in told]
    assert [info.repeated for info in infos] == [False, True, False]
    assert [info.epoch for info in infos] == sorted({info.epoch for info in infos})
    assert len({info.query for info in infos}) == 1
    assert infos[0].query
    assert [rows for _, rows in told] == [1, 1, 1]


def test_two_outputs_into_one_table_are_distinguished(spark: SparkSession) -> None:
    """As Delta does: the table skips a transaction that it has, by the application and a number that ascends."""
    table: dict[str, list[tuple[int, int]]] = {}

    def append(rows: DataFrame, epoch: int, info: EpochInfo) -> None:
        seen = table.setdefault(f"{info.query}/{info.output}", [])
        if all(epoch > before for before, _ in seen):
            seen.extend((epoch, row["n"]) for row in rows.collect())

    sinks = [ForeachBatchSink(append), ForeachBatchSink(append)]
    driver = StreamDriver(spark, lambda rows: [rows, rows.where("n > 1")], "n long", sinks=sinks)
    driver.process([(1,), (2,)])
    with driver.crash(at=sj.EpochPhase.DECIDE):
        driver.process([(3,)])
    driver.restart()
    assert sorted(n for rows in table.values() for _, n in rows) == [1, 2, 2, 3, 3]
    assert len(table) == 2


def test_other_arguments_with_defaults_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    called: list[tuple[Any, ...]] = []

    def into_table(rows: DataFrame, epoch: int, table: str = "clicks") -> None:
        called.append((epoch, table))

    for function in (into_table, lambda *arguments: called.append(arguments[1:])):
        sink = ForeachBatchSink(function)
        sink.commit(prepared(spark, sink, tmp_path / str(len(called))), lambda: None)
    assert called == [(4, "clicks"), (4,)]
