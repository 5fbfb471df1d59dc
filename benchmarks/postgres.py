"""PG: what the PostgreSQL sink costs beside a bare COPY of the same Arrow columns by the same number of connections.

``python -m benchmarks.postgres``. Two million result rows (a window's start and end, a key, a
count, two doubles, a text) in two partitions of a warm driver; the server waits for its disk. The bare COPY writes
the same batches as CSV from two processes and commits; the sink's time is prepare and commit, Spark's part included.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
from pyspark.sql import functions as F

from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.options import Options
from sparkjet.sinks.postgres.copying import csv_chunks
from sparkjet.sinks.postgres.settings import PostgresSettings
from sparkjet.sinks.postgres.sink import PostgresSink
from sparkjet.sinks.protocol import TransactionId
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
CONNECTIONS = 2
WARM_UP = 1
ROUNDS = 5
GOALS = {"always": 0.7, "never": 0.0}
"""By way of the sink; without prepared transactions rows are written twice, to the outbox first."""
TABLE = """(start timestamptz, "end" timestamptz, key bigint, n bigint, mean double precision,
            high double precision, sym text)"""


def result(session: SparkSession) -> DataFrame:
    """Rows as a window gives them, held in memory so that computing them is nobody's cost."""
    rows = session.range(ROWS, numPartitions=CONNECTIONS).select(
        F.timestamp_micros(F.col("id") * 1000).alias("start"),
        F.timestamp_micros(F.col("id") * 1000 + 60_000_000).alias("end"),
        (F.col("id") % 1000).alias("key"),
        "id",
        (F.col("id") / 7).alias("mean"),
        (F.col("id") / 3).alias("high"),
        F.concat(F.lit("symbol-"), F.col("id") % 500).alias("sym"),
    )
    held = rows.withColumnRenamed("id", "n").cache()
    held.count()
    return held


def bare(dsn: str, path: str, ready: object, go: object) -> None:
    """One connection's COPY, in a process of its own, as each of Spark's workers is one."""
    with pa.ipc.open_file(path) as file, psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        batches = [file.get_batch(n) for n in range(file.num_record_batches)]
        ready.release()  # type: ignore[attr-defined]
        go.wait()  # type: ignore[attr-defined]
        with cursor.copy("COPY bare FROM STDIN (FORMAT csv)") as copy:
            for chunk in csv_chunks(batches):
                copy.write(chunk)


def bare_copy(dsn: str, files: list[str]) -> float:
    """Seconds of the COPY by all connections, their start not counted."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    processes = [context.Process(target=bare, args=(dsn, file, ready, go)) for file in files]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    for process in processes:
        process.join()
    return time.perf_counter() - started


def through_sink(sink: PostgresSink, rows: DataFrame, epoch: int) -> float:
    """Seconds of an epoch's rows through the sink."""
    started = time.perf_counter()
    handle = sink.prepare(rows, TransactionId("benchmark", "results", 0, epoch, 0))
    if handle is None:
        sys.exit("nothing was prepared")
    sink.commit(handle, lambda: None)
    return time.perf_counter() - started


def split(rows: DataFrame, home: Path) -> list[str]:
    """The same rows as Arrow files, one for each connection, in batches as Spark hands them over."""
    # Without zones, which Arrow writes several times faster: what is compared is the way, not the format.
    table = rows.toArrow()
    for number in range(2):
        plain = table.column(number).cast(pa.timestamp("us"))
        table = table.set_column(number, table.schema.names[number], plain)
    size = len(table) // CONNECTIONS
    paths = []
    for number in range(CONNECTIONS):
        path = str(home / f"{number}.arrow")
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.slice(number * size, size), max_chunksize=10_000)
        paths.append(path)
    return paths


def study() -> list[Ratio]:
    """One ratio a way of the sink, paired by round."""
    session = local_session()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = result(session)
    ways: dict[str, Callable[[int], float]] = {}
    with tempfile.TemporaryDirectory() as home, PostgresServer(durable=True) as server:
        dsn = server.dsn()
        files = split(rows, Path(home))
        for way in GOALS:
            options = {"dsn": dsn, "dbtable": way, "prepared": way, "numPartitions": str(CONNECTIONS)}
            sink = PostgresSink(PostgresSettings.of(Options(options)))
            sink.attach(Path(home) / "outbox", session)
            sink.check(rows.schema)
            sink.create()
            ways[way] = lambda epoch, sink=sink: through_sink(sink, rows, epoch)  # type: ignore[misc]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE bare {TABLE}".encode())
            ways["bare"] = lambda _: bare_copy(dsn, files)
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            for round_ in range(WARM_UP + ROUNDS):
                for name, measured in ways.items():
                    connection.execute("TRUNCATE always, never, bare")
                    connection.execute("CHECKPOINT")
                    taken = measured(round_)
                    if round_ >= WARM_UP:
                        seconds[name].append(taken)
    session.stop()
    return [
        Ratio.of_seconds(
            "PG",
            f"rows into PostgreSQL, prepared={way}",
            Goal(f"bare COPY, prepared={way}", goal),
            seconds[way],
            seconds["bare"],
            ROWS,
        )
        for way, goal in GOALS.items()
    ]


if __name__ == "__main__":
    main(study)
