"""The Delta sink: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from pyspark.sql import functions as F

from sparkjet.connectors.delta.kernel import DeltaTable as DeltaKernelTable
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import QUERY, RUN, SCHEMA, SinkContract, SinkUnderTest, transaction
from sparkjet.tools import complete_until
from tests.connectors.delta.reading import by_duckdb, files_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle, TransactionId
    from sparkjet.storage.directory import Directory


def under_test(spark: SparkSession, directory: Directory, read: Callable[[], list[tuple[str, int]]]) -> SinkUnderTest:
    sink = DeltaSink(directory, spark)
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    sink.create()
    prepared = sink.directory.below(f"_sparkjet/{QUERY}")

    def dangling() -> int:
        return sum(len(prepared.below(f"{name}/prepared").names()) for name in prepared.names())

    return SinkUnderTest(sink, read, dangling)


def null(rows: DataFrame) -> DataFrame:
    """Rows that a table does not take in which ``n`` is NOT NULL."""
    return rows.withColumn("n", F.lit(None).cast("long"))


class TestOnAPath(SinkContract):
    """In CI, without what Iceberg's sink does: both have their files from `StagedFiles`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_an_epoch_without_rows_prepares_nothing",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
        "test_epochs_that_are_committed_at_once_are_seen_once_whoever_commits_which",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_what_a_copy_of_the_home_has_published_is_not_taken_for_its_own",
    )

    @pytest.fixture
    def target(self, delta: SparkSession, tmp_path: Path) -> SinkUnderTest:
        path = table_with(tmp_path, {})
        found = under_test(delta, PosixDirectory(path), lambda: [(row["k"], row["n"]) for row in rows_of(path)])
        return replace(found, refused=null)


VALUES = """
  'a' AS text, {n}L AS n, CAST({n} AS INT) AS i,
  CAST({n} AS SMALLINT) AS s, CAST({n} AS TINYINT) AS b,
  1.5F AS f, 2.5D AS d, CAST('12.50' AS DECIMAL(6, 2)) AS dec, true AS yes, X'00FF' AS bin,
  DATE'{day}' AS day, TIMESTAMP'{time}' AS ts,
  TIMESTAMP_NTZ'{time}' AS ntz, struct({n} AS x, array('p', NULL) AS y) AS st, map('k', {n}) AS m
"""
EDGES = [
    {"n": 1, "day": "2026-03-29", "time": "2026-03-29 02:30:00.123456"},
    {"n": -5, "day": "1969-12-31", "time": "1969-12-31 23:59:59.999999"},
    {"n": 0, "day": "0001-01-01", "time": "0001-01-01 00:00:00"},
    {"n": 7, "day": "9999-12-31", "time": "9999-12-31 23:59:59.999999"},
]


def written(spark: SparkSession, sink: DeltaSink, rows: DataFrame, epoch: int = 1) -> None:
    handle = sink.prepare(rows, transaction(epoch, run=RUN))
    assert handle is not None
    # As from the record of another process.
    sink.commit(json.loads(json.dumps(handle)), lambda: None)


def prepared(sink: DeltaSink, rows: DataFrame, of: TransactionId) -> Handle:
    handle = sink.prepare(rows, of)
    assert handle is not None
    return handle


def sink_of(spark: SparkSession, path: Path, rows: DataFrame, *partition_by: str) -> DeltaSink:
    sink = DeltaSink(PosixDirectory(path), spark, partition_by)
    sink.check(rows.schema)
    sink.create()
    return sink


def test_all_types_are_read_back_by_others_and_their_statistics_skip_files(delta: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    batches = [delta.sql(f"SELECT {VALUES.format(**edge)}") for edge in EDGES]
    sink = sink_of(delta, path, batches[0])
    for epoch, batch in enumerate(batches, 1):
        written(delta, sink, batch, epoch)
    found = sorted(rows_of(path), key=lambda row: row["n"])
    expected = sorted((row for batch in batches for row in batch.toArrow().to_pylist()), key=lambda row: row["n"])
    assert found == expected
    by_day = "SELECT n, dec, st.x, st.y FROM t WHERE day < DATE '1950-01-01' ORDER BY n"
    assert by_duckdb(path, by_day) == [(0, Decimal("12.50"), 0, ["p", None])]
    assert len(files_of(path, pc.field("n") > 0)) == 2
    assert len(files_of(path, pc.field("day") < date(1950, 1, 1))) == 1
    # The log has milliseconds: the bounds must be outside of 23:59:59.999999.
    assert len(files_of(path, pc.field("ntz") > datetime(1969, 12, 31, 23, 59, 59, 999_500))) == 2


PARTITIONS = {
    "text": ["'a/b=c %25 d'", "'ü\"'''", "NULL", "''"],
    "dec": ["CAST('-1.50' AS DECIMAL(6,2))", "CAST('12' AS DECIMAL(6,2))", "NULL"],
    "day": ["DATE'1969-12-31'", "DATE'0001-01-01'", "NULL"],
    "ts": ["TIMESTAMP'1969-12-31 23:59:59.999999'", "TIMESTAMP'2026-10-25 01:30:00'", "NULL"],
    "ntz": ["TIMESTAMP_NTZ'1969-12-31 23:59:59.5'", "NULL"],
    "flag": ["true", "false", "NULL"],
    "d": ["CAST('NaN' AS DOUBLE)", "-0.5D", "NULL"],
    "small": ["CAST(-128 AS TINYINT)", "NULL"],
}


@pytest.mark.parametrize(
    "names", [("text", "ts", "d"), pytest.param(tuple(PARTITIONS), marks=pytest.mark.long)], ids=len
)
def test_partition_values_come_back_as_they_were(delta: SparkSession, tmp_path: Path, names: tuple[str, ...]) -> None:
    zone = delta.conf.get("spark.sql.session.timeZone")
    for name in names:
        values = PARTITIONS[name]
        text = " UNION ALL ".join(f"SELECT {value} AS {name}, {n}L AS n" for n, value in enumerate(values))
        path = tmp_path / name
        delta.conf.set("spark.sql.session.timeZone", "America/New_York" if name == "ts" else "UTC")
        rows = delta.sql(text)
        written(delta, sink_of(delta, path, rows, name), rows)
        delta.conf.set("spark.sql.session.timeZone", zone)
        # An empty string is a null in Delta's log.
        expected = {row["n"]: row[name] or None if name == "text" else row[name] for row in rows.toArrow().to_pylist()}
        found = {row["n"]: row[name] for row in rows_of(path)}
        # As text: a NaN equals nothing.
        assert str(sorted(found.items())) == str(sorted(expected.items())), name


def test_a_timestamp_of_the_user_s_settings_is_written_by_delta_s_own(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT TIMESTAMP'2026-01-01 00:00:00.123456' AS ts, 1L AS n")
    name, before = "spark.sql.parquet.outputTimestampType", delta.conf.get("spark.sql.parquet.outputTimestampType")
    delta.conf.set(name, "TIMESTAMP_MILLIS")
    try:
        written(delta, sink_of(delta, tmp_path, rows), rows)
    finally:
        delta.conf.set(name, before)
    assert [row["ts"].microsecond for row in rows_of(tmp_path)] == [123456]


def test_what_the_log_tells_of_an_epoch(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(delta, tmp_path, rows)
    of = replace(transaction(3, run=RUN), watermark=1_700_000_000_000_000)
    handle = sink.prepare(rows, of)
    assert handle is not None
    sink.commit(handle, lambda: None)
    newest = DeltaTable(tmp_path).history(1)[0]
    assert newest["isBlindAppend"]
    assert json.loads(newest["userMetadata"])["sparkjet"] == {
        "query": QUERY,
        "output": "results",
        "epoch": 3,
        "watermark": 1_700_000_000_000_000,
        "rows": 1,
        "offsets": {},
        "version": 1,
        "run": RUN,
    }
    assert DeltaTable(tmp_path).transaction_version(f"sparkjet/{QUERY}/results") == 3
    assert complete_until(tmp_path).until == datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    # An epoch without rows: a version without files.
    told = sink.tell(replace(transaction(4, run=RUN), watermark=1_700_000_001_000_000))
    for _ in range(2):
        sink.commit(told, lambda: None)
    assert complete_until(DeltaTable(tmp_path)).until == datetime(2023, 11, 14, 22, 13, 21, tzinfo=timezone.utc)
    assert (len(rows_of(tmp_path)), DeltaTable(tmp_path).version()) == (1, newest["version"] + 1)
    write_deltalake(tmp_path, pa.table({"k": ["other"], "n": [9]}), mode="append")
    assert complete_until(tmp_path).why.startswith(
        "rows of other writers, which report no watermark: WRITE by delta-rs"
    )
    # The log of that version goes, and the transactions stay.
    sink.commit(prepared(sink, rows, replace(transaction(5, run=RUN), watermark=-1)), lambda: None)
    DeltaTable(tmp_path).create_checkpoint()
    for name in (tmp_path / "_delta_log").glob("*.json"):
        name.unlink()
    newest = DeltaTable(tmp_path)
    found = [newest.transaction_version(f"sparkjet/{QUERY}/results{more}") for more in ("", "/watermark")]
    assert found == [5, -1]


def test_others_write_in_between_and_neither_loses_rows(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(delta, tmp_path, rows)
    handle = sink.prepare(rows, transaction(1))
    assert handle is not None
    table = DeltaKernelTable(delta, sink.directory)
    stale = table.version()
    assert stale is not None
    write_deltalake(tmp_path, pa.table({"k": ["other"], "n": [9]}), mode="append")
    # A version that is no longer the newest takes no files; with the newest they are added.
    assert not sink._append(table, stale, [handle])
    sink.commit(handle, lambda: None)
    assert sorted(row["n"] for row in rows_of(tmp_path)) == [1, 9]


def test_of_many_drivers_at_once_one_commits(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, id AS n FROM range(5)")
    sink = sink_of(delta, tmp_path, rows)
    handles = [handle for epoch in (1, 2, 3) if (handle := sink.prepare(rows, transaction(epoch))) is not None]

    def commit(number: int) -> None:
        # Each has read nothing yet, as another process; and each knows other epochs that are decided.
        own = DeltaSink(sink.directory, delta)
        own.commit_all(handles[: number % 3 + 1], lambda: None)
        for handle in handles:
            own.commit(handle, lambda: None)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(commit, range(4)))
    assert sorted(row["n"] for row in rows_of(tmp_path)) == sorted([*range(5)] * 3)
    assert DeltaTable(tmp_path).version() in {1, 2, 3}


def test_files_that_are_gone_are_named_and_the_table_stays_as_it_was(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(delta, tmp_path, rows)
    written(delta, sink, rows)
    handle = sink.prepare(rows, transaction(2))
    assert handle is not None
    removed = DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert removed
    with pytest.raises(LostTransactionError, match="1 rows are lost, and the table is as it was"):
        sink.commit(handle, lambda: None)
    assert [row["n"] for row in rows_of(tmp_path)] == [1]


def test_what_is_committed_stays_so_whatever_maintenance_does(delta: SparkSession, tmp_path: Path) -> None:
    rows = delta.sql("SELECT 'a' AS k, id AS n FROM range(3)")
    sink = sink_of(delta, tmp_path, rows)
    prepared = [sink.prepare(rows, transaction(epoch, run=RUN)) for epoch in range(1, 7)]
    handles = [handle for handle in prepared if handle is not None]
    for handle in handles[:3]:
        sink.commit(handle, lambda: None)
    # Between files and their version, too.
    assert DeltaTable(tmp_path).optimize.compact()["numFilesRemoved"] > 0
    sink.commit_all(handles[3:], lambda: None)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    again = DeltaSink(sink.directory, delta)
    for handle in handles:
        again.commit(handle, lambda: None)
    # Files that were removed meanwhile would be rows once more.
    again.commit_all(handles[1:5], lambda: None)
    assert sorted(row["n"] for row in rows_of(tmp_path)) == sorted([0, 1, 2] * 6)
    assert "epoch 6" in str(again.published_after(transaction(3), None))


@pytest.mark.parametrize(
    ("sql", "settings", "message"),
    [
        ("SELECT 'a' AS k, 1 AS n", {}, r"'n' is int, and in .* it is bigint. Cast it"),
        ("SELECT 'a' AS k, 1L AS n, 2 AS x", {}, r"has no column 'x'. Columns: k, n"),
        ("SELECT 'a' AS k", {}, r"needs a value of column 'n'"),
        ("SELECT 'a' AS k, 1L AS n", {"delta.constraints.positive": "n > 0"}, r"has the constraint"),
        (
            "SELECT 'a' AS k, 1L AS n",
            {"delta.setTransactionRetentionDuration": "interval 1 day"},
            r"forgets transactions after interval 1 day",
        ),
    ],
)
def test_what_a_table_demands_is_refused_by_name_before_the_start(
    delta: SparkSession, tmp_path: Path, sql: str, settings: dict[str, str], message: str
) -> None:
    found = table_with(tmp_path, settings)
    with pytest.raises(AnalysisError, match=message):
        DeltaSink(PosixDirectory(found), delta).check(delta.sql(sql).schema)


def test_nulls_are_refused_where_the_table_has_none_before_the_decision(delta: SparkSession, tmp_path: Path) -> None:
    path = table_with(tmp_path, {})
    rows = delta.sql("SELECT k, n FROM VALUES ('a', 1L), ('b', CAST(NULL AS BIGINT)) AS t(k, n)")
    sink = sink_of(delta, path, rows)
    with pytest.raises(RefusedRowsError, match=r"column 'n' has a null, and .* has it NOT NULL"):
        sink.prepare(rows, transaction(1))
    sink.abort(transaction(1))
    written(delta, sink, rows.where("n IS NOT NULL"), 2)
    assert rows_of(path) == [{"k": "a", "n": 1}]


def test_a_directory_that_is_not_a_table_is_refused(delta: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"")
    with pytest.raises(AnalysisError, match=r"is not a Delta table, but has part-0\.parquet in it"):
        DeltaSink(PosixDirectory(tmp_path), delta).check(delta.sql("SELECT 1 AS n").schema)


@pytest.mark.parametrize(
    ("sql", "by", "message"),
    [
        ("SELECT 1 AS n", ("x",), r"no column 'x'"),
        ("SELECT 1 AS n", ("n",), r"at least one column"),
        ("SELECT array(1) AS a, 1 AS n", ("a",), r"'a' is array<int>, which paths cannot hold"),
        ("SELECT INTERVAL '1' DAY AS i", (), r"Delta's table"),
        ("SELECT struct() AS e, 1 AS n", (), r"column 'e' is struct<>, and Parquet has no struct without fields"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    delta: SparkSession, tmp_path: Path, sql: str, by: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message):
        DeltaSink(PosixDirectory(tmp_path / "t"), delta, by).check(delta.sql(sql).schema)
    assert not (tmp_path / "t").exists()


def table_with(place: Path, settings: dict[str, str]) -> Path:
    """A table of somebody else's with columns k and n NOT NULL, and with properties."""
    path = place / "their table"
    schema = Schema([Field("k", "string"), Field("n", "long", nullable=False)])
    DeltaTable.create(path, schema)
    first = path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= settings
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
