"""PG: the cost of the PostgreSQL sink, against a bare COPY of the same Arrow columns by as many connections.

``python -m benchmarks.postgres``. Two million result rows (a window's start and end, a key, a
count, two doubles, a text) in two partitions of a warm driver; the server waits for its disk. The bare COPY writes
the same batches as CSV from two processes and commits; the sink's time is prepare and commit, Spark's part included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyspark.sql import functions as F

from benchmarks.beside import arrow_files, batches_of, in_turns, seconds_of, through_sink
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.connectors.postgres.batches import csv_chunks
from sparkjet.connectors.postgres.settings import PostgresSettings
from sparkjet.connectors.postgres.sink import PostgresSink
from sparkjet.options import Options
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
CONNECTIONS = 2
WARM_UP = 3
"""As in KW: Java compiles Spark's part in the first ones."""
ROUNDS = 5
GOALS = {"always": 0.85, "never": 0.0}
"""Goals by way of the sink; without prepared transactions, rows are written twice, first to the outbox."""
TABLE = """(start timestamptz, "end" timestamptz, key bigint, n bigint, mean double precision,
            high double precision, sym text)"""


def result(session: SparkSession) -> DataFrame:
    """Rows like a window's, persisted in memory so that computing them costs neither side."""
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


def bare(dsn: str, path: str, ready: Any, go: Any) -> None:
    """One connection's COPY, in a separate process, like Spark's workers."""
    batches = batches_of(path)
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        ready.release()
        go.wait()
        with cursor.copy("COPY bare FROM STDIN (FORMAT csv)") as copy:
            for chunk in csv_chunks(batches):
                copy.write(chunk)


def plain(rows: DataFrame) -> pa.Table:
    """The same rows for the bare COPY."""
    # Without zones, which Arrow writes several times faster: the comparison is of the way, not the format.
    table = rows.toArrow()
    for number in range(2):
        zoneless = table.column(number).cast(pa.timestamp("us"))
        table = table.set_column(number, table.schema.names[number], zoneless)
    return table


def study() -> list[Ratio]:
    """One ratio per way of the sink, paired by round."""
    session = local_session()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = result(session)
    ways: dict[str, Callable[[int], float]] = {}
    with tempfile.TemporaryDirectory() as home, PostgresServer(durable=True) as server:
        dsn = server.dsn()
        files = arrow_files(plain(rows), CONNECTIONS, Path(home))
        for way in GOALS:
            options = {"dsn": dsn, "dbtable": way, "prepared": way, "numPartitions": str(CONNECTIONS)}
            sink = PostgresSink(PostgresSettings.of(Options(options)))
            sink.attach(Path(home) / "outbox", session)
            sink.check(rows.schema)
            sink.create()
            ways[way] = lambda epoch, sink=sink: through_sink(sink, rows, epoch)  # type: ignore[misc]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE bare {TABLE}".encode())
            ways["bare"] = lambda _: seconds_of(bare, [(dsn, file) for file in files])

            def empty() -> None:
                connection.execute("TRUNCATE always, never, bare")
                connection.execute("CHECKPOINT")

            seconds = in_turns(ways, ROUNDS, WARM_UP, empty)
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
