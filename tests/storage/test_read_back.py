"""Data that sparkjet writes for itself is read back unchanged, whatever a user has set in the session."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import parquet
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import StorageError
from sparkjet.sinks.foreach_batch import ForeachBatchSink
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.read_back import in_session
from sparkjet.storage.written import write
from sparkjet.testing import StreamDriver
from tests.environment.session_settings import changed, session_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = """
    SELECT id, id * 3 AS ID2,
        timestamp_micros(id * 1000001 + 1) AS recent,
        timestamp_micros(-12219292800000000 - id * 86400000001) AS julian,
        timestamp_micros(253402300800000001 + id) AS far,
        timestamp_ntz '1582-10-07 01:02:03.000004' AS ntz,
        date_add(DATE '1582-10-15', int(-id)) AS day,
        make_dt_interval(int(id), 1, 2, 3.000004) AS for, make_ym_interval(int(id), 2) AS months,
        cast(id AS decimal(9, 2)) AS small, cast(id AS decimal(38, 18)) / 7 AS large,
        cast(concat('b', id) AS binary) AS bytes, concat('ü', id) AS text, id % 2 = 0 AS even,
        named_struct('A b', array(timestamp_micros(id)), 'c', map(id, named_struct('d', timestamp_micros(id)))) AS deep,
        parse_json(concat('{"a": ', id, ', "t": [1, "x"]}')) AS variant, NULL AS nothing
    FROM range(0, 20, 1, 2)
"""
SHOWN = """
    id, ID2, unix_micros(recent) AS recent, unix_micros(julian) AS julian, unix_micros(far) AS far,
    cast(ntz AS string) AS ntz, unix_date(day) AS day, cast(for AS string) AS for, cast(months AS string) AS months,
    cast(small AS string) AS small, cast(large AS string) AS large, hex(bytes) AS bytes, text, even,
    unix_micros(deep.`A b`[0]) AS a, unix_micros(deep.c[id].d) AS c, to_json(variant) AS variant,
    cast(nothing AS string) AS nothing
"""


def shown(rows: DataFrame, session: SparkSession) -> list[tuple[Any, ...]]:
    """The values as Python has them all; computed in a session that changes none."""
    columns = [each.strip() for each in re.split(r",\s(?![^(]*\))", SHOWN)]
    return sorted(tuple(row) for row in in_session(session, rows).selectExpr(*columns).collect())


def test_rows_come_back_under_any_setting_of_readers_and_writers(spark: SparkSession, tmp_path: Path) -> None:
    plain = spark.sql(VALUES)
    expected = shown(plain, spark)
    one, other = (session_with(spark, changed(spark, "formats", number)) for number in (0, 1))
    for number, (writing, reading) in enumerate([(one, spark), (spark, one), (other, other)]):
        place = tmp_path / f"{number}"
        # Its expressions are resolved: only writer and reader differ.
        found = write(in_session(writing, plain), FileWriter(PosixDirectory(place), read_back=True), StorageError)
        assert (found.rows, len(found.files)) == (20, 2)
        back = read(reading, PosixDirectory(place), [*found.files])
        assert back.sparkSession is reading
        assert back.schema.simpleString() == plain.schema.simpleString()
        assert shown(back, spark) == expected
        # Of readers that are not Spark's: those of queues read on the driver.
        there = parquet.read_schema(place / next(iter(found.files)))
        assert str(there.field("far").type) == "timestamp[us, tz=UTC]"
        # Taken apart, a variant's fields are columns that its readers may not know: Delta's ask for a feature.
        assert {each.name for each in there.field("variant").type.fields} == {"metadata", "value"}


def test_state_and_outbox_hold_what_the_query_has_computed(spark: SparkSession, tmp_path: Path) -> None:
    """In one session with all these settings: each time keeps its microseconds over a restart."""
    session = session_with(spark, {**changed(spark, "formats"), "spark.sql.caseSensitive": "false"})
    got: list[tuple[str, int, int]] = []

    def keep(rows: DataFrame, epoch: int) -> None:
        del epoch
        assert rows.sparkSession.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS"
        got.extend(tuple(row) for row in rows.selectExpr("k", "unix_micros(newest)", "n").collect())

    driver = StreamDriver(
        session,
        lambda rows: (
            rows.withWatermark("ts", 0)
            .groupBy(sj.window("ts", "10 seconds"), "k")
            .agg(F.max("ts").alias("newest"), F.count("*").alias("n"))
        ),
        "ts timestamp_ltz, k string",
        sinks=[ForeachBatchSink(keep)],
    )
    first = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    driver.process([(first + dt.timedelta(microseconds=n), "a") for n in (1, 3, 1001)])
    driver.stop()
    driver.restart()
    driver.process([(first + dt.timedelta(seconds=10), "a")])
    assert got == [("a", int(first.timestamp()) * 1_000_000 + 1001, 3)]
