"""Sources that can be read again, shown by restarts, and those that cannot, refused or said so."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.engine.phases import EpochPhase
from sparkjet.plan.spark_sources import (
    Replayability,
    acknowledging_source,
    described_sources,
    replayability,
    streaming_sources,
)
from sparkjet.spark_line import LINE
from tests.counting import counting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.writer import StreamWriter

EXACTLY_ONCE = {"results": "exactly-once"}
SOCKET = "org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider"


class CrashError(Exception):
    """Stands for the driver's death in these tests."""


class Crash:
    """Lets the first epoch from number 2 on die at a step."""

    def __init__(self, at: EpochPhase) -> None:
        self._at = at
        self.happened = False

    def __call__(self, step: EpochPhase, epoch: int) -> None:
        """Called by the epoch."""
        if step is self._at and epoch >= 2 and not self.happened:
            self.happened = True
            raise CrashError


def run_with_crashes(writer: Callable[[], StreamWriter]) -> dict[str, str]:
    """Runs over what there is, one that dies before its decision, one that dies after it, and a last one to the end."""
    for step in (EpochPhase.PREPARE, EpochPhase.DECIDE):
        crash = Crash(step)
        for _ in range(5):
            if crash.happened:
                break
            query = writer().trigger(availableNow=True).onEpochPhase(crash).start()
            try:
                query.awaitTermination()
            except CrashError:
                assert crash.happened
        assert crash.happened
    query = writer().trigger(availableNow=True).option("closeWindowsAtEnd", True).start()
    query.awaitTermination()
    return query.guarantees


def read(spark: SparkSession, source: str, **options: object) -> DataFrame:
    return spark.readStream.format(source).options(**options).load()  # type: ignore[arg-type]


def values(df: DataFrame, time: str = "timestamp") -> WindowedStream:
    """Values with their times, by windows of a second."""
    stream = sj.stream(df).withWatermark(time, "0 seconds")
    pair = F.struct("value", F.unix_micros(time).alias("at"))
    return stream.groupBy(sj.window(time, "1 second")).agg(F.collect_list(pair).alias("pairs"))


def written(result: WindowedStream, home: Path) -> StreamWriter:
    writer = result.writeStream.format("files").option("path", home / "out")
    return writer.option("checkpointLocation", home / "ck").option("statePartitions", 1)


def delivered(home: Path) -> list[tuple[int, int]]:
    rows = sj.read_files(str(home / "out")).select(F.explode("pairs").alias("pair")).select("pair.*")
    return sorted((row.value, row.at) for row in rows.collect())


@pytest.mark.crash
def test_rate_gives_the_same_rows_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    def writer() -> StreamWriter:
        return written(values(read(spark, "rate", rowsPerSecond=5)), tmp_path)

    for step in (EpochPhase.PREPARE, EpochPhase.DECIDE):
        query = writer().onEpochPhase(Crash(step)).start()
        with pytest.raises(CrashError):
            query.awaitTermination()
    far_enough = threading.Event()

    def look(step: EpochPhase, epoch: int) -> None:
        # An epoch is a second or more of this source: by then windows behind both crashes are closed.
        if step is EpochPhase.CLEAN and epoch >= 6:
            far_enough.set()

    query = writer().onEpochPhase(look).start()
    assert far_enough.wait(120)
    query.stop()
    found = delivered(tmp_path)
    assert len(found) >= 15
    assert [value for value, _ in found] == list(range(len(found)))
    # One and the same start, which Spark keeps among the files that the record saves.
    assert {at - value * 200_000 for value, at in found} == {found[0][1]}
    assert query.guarantees == EXACTLY_ONCE


@pytest.mark.crash
def test_rate_micro_batch_gives_the_same_rows_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    def writer() -> StreamWriter:
        return written(values(read(spark, "rate-micro-batch", rowsPerBatch=10, advanceMillisPerBatch=1000)), tmp_path)

    assert run_with_crashes(writer) == EXACTLY_ONCE
    found = delivered(tmp_path)
    assert len(found) >= 30
    assert found == [(value, value // 10 * 1_000_000) for value in range(len(found))]


@pytest.mark.crash
def test_a_simple_python_reader_gives_the_same_rows_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(counting([15, 30, 40]))

    def writer() -> StreamWriter:
        df = read(spark, "counting").select(F.timestamp_seconds("id").alias("timestamp"), F.col("id").alias("value"))
        return written(values(df), tmp_path)

    query = writer().onEpochPhase(Crash(EpochPhase.DECIDE)).start()
    with pytest.raises(CrashError):
        query.awaitTermination()
    query = writer().start()
    query.processAllAvailable()
    query.stop()
    # The last window waits for a later row.
    assert delivered(tmp_path) == [(n, n * 1_000_000) for n in range(39)]
    assert query.guarantees == EXACTLY_ONCE


@pytest.fixture
def server() -> Iterator[int]:
    """A port where each connection gets three lines and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connections.append(connection)
                connection.sendall(b"a\nb\nc\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("name", ["socket", "SOCKET", SOCKET])
def test_a_socket_is_refused_before_the_start(spark: SparkSession, tmp_path: Path, name: str) -> None:
    lines = read(spark, name, host="127.0.0.1", port=9, includeTimestamp=True)
    for guarantee in ("exactly-once", "at-least-once"):
        writer = written(values(lines), tmp_path).option("processingGuarantee", guarantee)
        with pytest.raises(sj.AnalysisError, match=rf"'socket' is not replayable.*{guarantee}.*\"none\""):
            writer.start()
    rate = sj.stream(read(spark, "rate").select(F.col("value").cast("string"), "timestamp"))
    united = rate.withWatermark("timestamp", "0 seconds").union(
        sj.stream(lines).withWatermark("timestamp", "0 seconds")
    )
    beside = united.groupBy(sj.window("timestamp", "1 second")).count()
    with pytest.raises(sj.AnalysisError, match="'socket' is not replayable"):
        written(beside, tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_runs_without_a_guarantee(spark: SparkSession, tmp_path: Path, server: int) -> None:
    lines = read(spark, "socket", host="127.0.0.1", port=server).withColumn("timestamp", F.timestamp_seconds(F.lit(0)))
    query = written(values(lines), tmp_path).option("processingGuarantee", "none").start()
    query.processAllAvailable()
    assert query.guarantees == {"results": "none"}
    query.stop()


@pytest.mark.parametrize(
    ("make", "answer", "name"),
    [
        (lambda s, p: s.readStream.schema("v int").json(p), Replayability.YES, "json"),
        (lambda s, p: s.readStream.schema("v int").format("PARQUET").load(p), Replayability.YES, "PARQUET"),
        (
            lambda s, p: (
                s.readStream.schema("v int")
                .format("org.apache.spark.sql.execution.datasources.csv.CSVFileFormat")
                .load(p)
            ),
            Replayability.YES,
            "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
        ),
        (lambda s, p: s.readStream.schema("v int").option("cleanSource", "delete").json(p), Replayability.YES, "json"),
        (lambda s, p: read(s, "RATE"), Replayability.YES, "rate"),
        (lambda s, p: read(s, "rate-micro-batch", rowsPerBatch=1), Replayability.YES, "rate-micro-batch"),
        (lambda s, p: read(s, "rate").union(read(s, "rate")), Replayability.YES, "rate"),
        (lambda s, p: s.readStream.table(stored(s, p)), Replayability.YES, "parquet"),
        (lambda s, p: with_cte(read(s, "rate")), Replayability.YES, "rate"),
    ],
)
def test_known_sources_are_known_by_whatever_name(
    spark: SparkSession,
    tmp_path: Path,
    make: Callable[[SparkSession, str], DataFrame],
    answer: Replayability,
    name: str,
) -> None:
    assert replayability(make(spark, str(tmp_path))) == (answer, name)


@pytest.mark.parametrize(
    ("name", "options", "described"),
    [
        ("sparkjet-kafka", {"subscribe": "clicks", "kafka.bootstrap.servers": "h:1"}, "sparkjet-kafka clicks"),
        ("sparkjet-rabbitmq", {"queues": "orders, refunds"}, "sparkjet-rabbitmq orders, refunds"),
        ("sparkjet-artemis", {"queues": "orders"}, "sparkjet-artemis orders"),
    ],
)
def test_a_source_is_described_by_what_it_reads(
    spark: SparkSession, name: str, options: Mapping[str, str], described: str
) -> None:
    """Without it, two queues that change places would be taken for each other, with the ids of their messages."""
    sj.register_sources(spark)
    assert described_sources(spark.readStream.format(name).options(**options).load()) == [("", described)]


def stored(spark: SparkSession, path: str) -> str:
    (Path(path) / "table").mkdir()
    spark.sql(f"CREATE TABLE IF NOT EXISTS sources_of_spark (v INT) USING parquet LOCATION '{path}/table'")
    return "sources_of_spark"


def with_cte(df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("rates")
    return df.sparkSession.sql("WITH r AS (SELECT * FROM rates) SELECT * FROM r UNION ALL SELECT * FROM r")


def test_a_common_table_expression_is_not_a_source(spark: SparkSession) -> None:
    assert streaming_sources(with_cte(read(spark, "rate"))) == 1
    assert acknowledging_source(with_cte(read(spark, "RATE"))) is None


def test_an_unknown_source_is_warned_of_and_promises_nothing(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    df = memory_stream(spark).selectExpr("value", "timestamp_seconds(value) AS timestamp")
    assert replayability(df)[0] is Replayability.UNKNOWN
    with caplog.at_level(logging.WARNING, logger="sparkjet"):
        query = written(values(df), tmp_path).start()
    query.stop()
    assert query.guarantees == {"results": "none"}
    assert any('query.guarantees is "none"' in message for message in caplog.messages)


def memory_stream(spark: SparkSession) -> DataFrame:
    """A source that Spark uses in its own tests: in the JVM, and on no list."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    encoder = jvm.org.apache.spark.sql.Encoders.scalaInt()
    streaming = jvm.org.apache.spark.sql.execution.streaming
    memory = streaming.runtime.MemoryStream if LINE >= (4, 1) else streaming.MemoryStream
    source = memory(0, session if LINE >= (4, 1) else session.sqlContext(), jvm.scala.Option.empty(), encoder)
    return type(spark.range(1))(source.toDF(), spark)
