"""A value that cannot be written fails before the decision; all others are published as Spark has them."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.connectors.artemis import columns as artemis
from sparkjet.errors import SinkError
from sparkjet.sinks.console import ConsoleSink
from sparkjet.sinks.foreach import ForeachSink, doubtful
from sparkjet.sinks.memory import MemorySink
from sparkjet.testing.sink_contract import transaction

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.outbox_sink import OutboxSink

FAR = "timestamp_micros(253402300800000001)"
"""In the year 10000."""
UNKNOWN_TO_PYTHON = [
    FAR,
    "timestamp_micros(-62198755200000000)",
    f"cast({FAR} AS timestamp_ntz)",
    "date_from_unix_date(2932897)",
    "make_ym_interval(1, 2)",
    f"named_struct('a b', array(map('k', {FAR})))",
    f"map({FAR}, 1)",
    "TIMESTAMP '0001-01-01 00:00:00'",
]
KNOWN_TO_PYTHON = [
    "TIMESTAMP '9999-12-31 23:59:59'",
    "TIMESTAMP '0001-01-02 00:00:01'",
    "DATE '9999-12-31'",
    "array(DATE '0001-01-01', NULL)",
]
BROKEN = "cast(X'ff' AS string)"


def attached(sink: OutboxSink, session: SparkSession, rows: DataFrame, directory: Path) -> Any:
    sink.attach(directory / "outbox", session)
    sink.check(rows.schema)
    return sink


def test_memory_has_each_value_as_spark_has_it(spark: SparkSession, tmp_path: Path) -> None:
    """Two instants of the hour that is repeated, and what Python has no value for; after each epoch."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    others = ", ".join(f"{value} AS v{number}" for number, value in enumerate(UNKNOWN_TO_PYTHON))
    repeated = "timestamp_micros(1762061400000000 + id * 3600000000) AS hour"
    rows = session.range(2).selectExpr("id", repeated).crossJoin(session.sql(f"SELECT {others}"))
    sink = attached(MemorySink("edges", session), session, rows, tmp_path)
    sink.create()
    assert session.table("edges").schema == rows.schema
    for epoch in (1, 2):
        sink.commit(sink.prepare(rows, transaction(epoch)), lambda: None)
        table = session.table("edges")
        assert table.schema == rows.schema
        assert table.selectExpr("unix_micros(hour)").distinct().count() == 2
        assert sorted(table.selectExpr("id", "unix_micros(hour)", "unix_micros(v0)").collect()) == [
            (n, 1762061400000000 + n * 3600000000, 253402300800000001) for n in (0, 1) for _ in range(epoch)
        ]
        assert table.selectExpr("cast(v4 AS string)", "v5.`a b`[0]['k'] = v0").distinct().collect() == [
            ("INTERVAL '1-2' YEAR TO MONTH", True)
        ]


def test_the_rows_of_memory_are_replaced_in_complete_mode(spark: SparkSession, tmp_path: Path) -> None:
    sink = attached(MemorySink("whole", spark, complete=True), spark, spark.range(3), tmp_path)
    sink.create()
    for epoch, rows in enumerate([spark.range(3), spark.range(7, 9), spark.range(0)], 1):
        sink.commit(sink.prepare(rows, transaction(epoch)), lambda: None)
        assert sorted(spark.table("whole").collect()) == rows.collect()


def test_what_python_may_not_have_is_found_wherever_it_is(spark: SparkSession) -> None:
    usual = [
        "current_timestamp()",
        "array(current_date(), NULL)",
        "map('a', 1)",
        "interval '1' day",
        f"cast({FAR} AS string)",
    ]
    rows = spark.sql(f"SELECT {', '.join([*UNKNOWN_TO_PYTHON, *usual])}")
    rows = rows.toDF(*[f"odd.{number}" for number in range(len(rows.columns))])
    conditions = [doubtful(StructType([field])) for field in rows.schema]
    found = rows.select([F.lit(False) if each is None else each for each in conditions]).first()
    assert found == (True,) * len(UNKNOWN_TO_PYTHON) + (False,) * len(usual)


def test_foreach_refuses_what_python_has_no_value_for(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(f"SELECT 1 AS id, {FAR} AS `odd.name` UNION ALL SELECT 2, NULL")
    sink = attached(ForeachSink(print), spark, rows, tmp_path)
    with pytest.raises(SinkError, match=r"foreach: epoch 1 has rows .*years 1 to 9999.*cast"):
        sink.prepare(rows, transaction(1))
    sink.abort(transaction(1))
    sink.commit(sink.prepare(rows.where("id = 2"), transaction(1, attempt=1)), lambda: None)


def test_foreach_takes_the_first_and_the_last_value_that_python_has(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(f"SELECT {', '.join(f'{value} AS v{n}' for n, value in enumerate(KNOWN_TO_PYTHON))}")
    sink = attached(ForeachSink(print), spark, rows, tmp_path)
    handle = sink.prepare(rows, transaction(1))
    assert handle["rows"] == 1
    sink.commit(handle, lambda: None)


def test_console_shows_characters_that_the_terminal_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(f"SELECT 'ü→' AS text, {', '.join(f'{v} AS v{n}' for n, v in enumerate(UNKNOWN_TO_PYTHON))}")
    sink = attached(ConsoleSink(), spark, rows, tmp_path)
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    handle = sink.prepare(rows, transaction(1))
    with contextlib.redirect_stdout(terminal):
        sink.commit(handle, lambda: None)
    terminal.flush()
    printed = terminal.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert "Epoch: 1\n" in printed
    assert "\\xfc\\u2192" in printed
    assert "+10000-01-01 00:00:00.000001"[:17] in printed


@pytest.mark.parametrize("column", [f"{BROKEN} AS body", f"{BROKEN} AS type", f"map('p', {BROKEN}) AS properties"])
def test_artemis_refuses_text_that_is_not_utf_8(spark: SparkSession, column: str) -> None:
    """Its bytes would be read on the driver, after the decision, and fail there."""
    rows = spark.sql(f"SELECT {column}")
    [found] = [fault for fault, condition in artemis.faults(rows.schema) if rows.where(condition).count()]
    assert "not UTF-8" in found
