"""The Iceberg sink: the contract of all sinks, and its own behaviour."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import functions as F

from sparkjet.connectors.iceberg.library import IcebergTable, PathTable
from sparkjet.connectors.iceberg.schema import new_schema
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError, CopiedHomeError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.java import static_method
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import (
    OTHER_RUN,
    QUERY,
    RUN,
    SCHEMA,
    SinkContract,
    SinkUnderTest,
    transaction,
)
from sparkjet.tools import complete_until
from tests.connectors.iceberg.others import by_duckdb, by_pyiceberg
from tests.connectors.iceberg.reading import IcebergReader, each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.iceberg.version import Version
    from sparkjet.sinks.protocol import Handle

EXPRESSIONS = "org.apache.iceberg.expressions.Expressions"
APPLICATION = f"sparkjet/{QUERY}/results"


def under_test(spark: SparkSession, table: IcebergTable, place: Path | str | IcebergTable) -> SinkUnderTest:
    sink = IcebergSink(table, spark)
    sink.check(spark.createDataFrame([], SCHEMA).schema)
    sink.create()
    assert sink._staged is not None
    prepared = sink._staged.directory.below(f"_sparkjet/{QUERY}")

    def dangling() -> int:
        return sum(len(prepared.below(f"{name}/prepared").names()) for name in prepared.names())

    def read() -> list[tuple[str, int]]:
        return [(row["k"], row["n"]) for row in IcebergReader(spark, place).rows()]

    return SinkUnderTest(sink, read, dangling)


class TestOnAPath(SinkContract):
    """In CI, without what Delta's sink does: both have their files from `StagedFiles`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_repeated_commit_changes_nothing",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_a_driver_that_slept_for_epochs_and_commits_again_changes_nothing",
        "test_epochs_that_are_committed_at_once_are_seen_once_whoever_commits_which",
        "test_rows_that_it_refuses_are_distinguished_from_other_failures_before_the_decision",
        "test_it_knows_later_epochs_or_says_that_it_cannot",
        "test_a_query_goes_on_from_a_copy_of_its_home",
    )

    @pytest.fixture
    def target(self, iceberg: SparkSession, tmp_path: Path) -> SinkUnderTest:
        path = tmp_path / "a table"
        require_n(iceberg, path)
        found = under_test(iceberg, PathTable(iceberg, PosixDirectory(path)), path)
        return replace(found, refused=lambda rows: rows.withColumn("n", F.lit(None).cast("long")))


def sink_of(spark: SparkSession, path: Path, rows: DataFrame, *partition_by: str) -> IcebergSink:
    sink = IcebergSink(PathTable(spark, PosixDirectory(path)), spark, partition_by)
    sink.check(rows.schema)
    sink.create()
    return sink


def require_n(spark: SparkSession, path: Path) -> None:
    """Create a table with columns k and n NOT NULL."""
    sink = sink_of(spark, path, spark.createDataFrame([], SCHEMA))
    sink.table._load().updateSchema().allowIncompatibleChanges().requireColumn("n").commit()


def prepared(sink: IcebergSink, rows: DataFrame, epoch: int, run: str = RUN) -> Handle:
    handle = sink.prepare(rows, transaction(epoch, run=run))
    assert handle is not None
    # As from the record of another process.
    found: Handle = json.loads(json.dumps(handle))
    return found


def written(sink: IcebergSink, rows: DataFrame, epoch: int = 1) -> Handle:
    handle = prepared(sink, rows, epoch)
    sink.commit(handle, lambda: None)
    return handle


def numbers(spark: SparkSession, place: Path | str) -> list[int]:
    return sorted(row["n"] for row in IcebergReader(spark, place).rows())


def test_a_commit_that_others_were_before_adds_nothing_and_is_made_again(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path / "t", rows)
    handle = prepared(sink, rows, 1)
    stale = sink.table.version()
    assert stale is not None
    sink.table._load().updateProperties().set("owner", "them").commit()
    before = len(list((tmp_path / "t" / "metadata").glob("*.avro")))
    assert not sink._append(sink.table, stale, [handle])
    # What it wrote for that is gone.
    assert len(list((tmp_path / "t" / "metadata").glob("*.avro"))) == before
    sink.commit(handle, lambda: None)
    assert numbers(iceberg, tmp_path / "t") == [1]
    assert IcebergReader(iceberg, tmp_path / "t").version.properties["owner"] == "them"


def test_a_commit_that_is_denied_although_it_was_made_keeps_its_manifests(
    iceberg: SparkSession, tmp_path: Path
) -> None:
    """As by a REST catalog that is asked twice, since a gateway gave up waiting for the first answer."""

    class Denied(PathTable):
        def _commit(self, version: Version, metadata: Any) -> bool:
            super()._commit(version, metadata)
            return False

    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path / "t", rows)
    handle = prepared(sink, rows, 1)
    sink.table = Denied(iceberg, PosixDirectory(tmp_path / "t"))
    sink.commit(handle, lambda: None)
    assert numbers(iceberg, tmp_path / "t") == [1]


def test_of_many_drivers_at_once_one_commits_into_a_directory(iceberg: SparkSession, tmp_path: Path) -> None:
    race(iceberg, lambda: PathTable(iceberg, PosixDirectory(tmp_path / "t")), tmp_path / "t")


def race(spark: SparkSession, table: Callable[[], IcebergTable], place: Path | str) -> None:
    rows = spark.sql("SELECT 'a' AS k, id AS n FROM range(5)")

    def sink() -> IcebergSink:
        """One that has read nothing yet, as another process."""
        made = IcebergSink(table(), spark)
        made.check(rows.schema)
        made.create()
        return made

    first = sink()
    handles = [prepared(first, rows, epoch) for epoch in (1, 2, 3)]

    def commit(number: int) -> None:
        own = sink()
        # Each knows other epochs that are decided.
        own.commit_all(handles[: number % 3 + 1], lambda: None)
        for handle in handles:
            own.commit(handle, lambda: None)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(commit, range(4)))
    assert numbers(spark, place) == sorted([*range(5)] * 3)


def test_a_commit_whose_answer_is_lost_excludes_the_next(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path / "t", rows)
    handle = prepared(sink, rows, 1)
    late = sink.table.version()
    assert late is not None
    # It has been asked, and will be put after the next one, or has been put before it: of both one counts.
    sink.commit(handle, lambda: None)
    assert not sink._append(sink.table, late, [handle])
    again = prepared(sink, rows, 2)
    early = sink.table.version()
    assert early is not None
    assert sink._append(sink.table, early, [again])
    sink.commit(again, lambda: None)
    assert numbers(iceberg, tmp_path / "t") == [1, 1]


def test_what_the_table_tells_of_an_epoch(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    of = replace(transaction(3, run=RUN), watermark=1_700_000_000_000_000)
    handle = sink.prepare(rows, of)
    assert handle is not None
    sink.commit(handle, lambda: None)
    version = IcebergReader(iceberg, tmp_path).version
    newest = {"epoch": 3, "transaction": handle["folder"], "watermark": 1_700_000_000_000_000, "run": RUN}
    assert version.last(APPLICATION) == newest
    shared = {"query": QUERY, "output": "results", "rows": 1, "offsets": {}, "version": 1}
    assert list(version.ancestors()) == [{**newest, **shared}]
    # An epoch without rows: a snapshot without files, as a property alone makes no batch for who follows the table.
    empty = sink.tell(replace(transaction(4, run=RUN), watermark=1_700_000_001_000_000))
    for each_time in (empty, handle, empty):
        sink.commit(each_time, lambda: None)
    version = IcebergReader(iceberg, tmp_path).version
    newest = {**newest, "epoch": 4, "transaction": empty["folder"], "watermark": 1_700_000_001_000_000}
    assert version.last(APPLICATION) == newest
    assert [(each["epoch"], each["rows"]) for each in version.ancestors()] == [(4, 0), (3, 1)]
    told = complete_until(StaticTable.from_metadata(str(version.base.metadataFileLocation())))
    assert (told.others, told.until) == ((), datetime(2023, 11, 14, 22, 13, 21, tzinfo=timezone.utc))
    # The property stays when the snapshot goes.
    table = sink.table._load()
    table.newDelete().deleteFromRowFilter(static_method(iceberg, f"{EXPRESSIONS}.alwaysTrue")()).commit()
    expire(sink)
    version = IcebergReader(iceberg, tmp_path).version
    assert (version.last(APPLICATION), list(version.ancestors())) == (newest, [])


def test_two_outputs_of_one_query_go_into_one_table(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    # Its metadata may be compressed.
    sink.table._load().updateProperties().set("write.metadata.compression-codec", "gzip").commit()
    for output in ("results", "late"):
        handle = sink.prepare(rows, replace(transaction(1, run=RUN), sink=output))
        assert handle is not None
        for _ in range(2):
            sink.commit(handle, lambda: None)
    made = {each.name for each in (tmp_path / "metadata").glob("v*")}
    assert made >= {"v3.gz.metadata.json", "v4.gz.metadata.json"}
    assert numbers(iceberg, tmp_path) == [1, 1]


def test_files_that_are_gone_are_named_and_the_table_stays_as_it_was(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    written(sink, rows)
    handle = prepared(sink, rows, 2)
    (tmp_path / "data" / handle["files"][0][0]).unlink()
    with pytest.raises(LostTransactionError, match="1 rows are lost, and the table is as it was"):
        sink.commit(handle, lambda: None)
    assert numbers(iceberg, tmp_path) == [1]


def test_what_is_committed_stays_so_whatever_maintenance_does(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    handles = [prepared(sink, rows, epoch) for epoch in (1, 2, 3)]
    sink.commit(handles[0], lambda: None)
    [first] = [tmp_path / "data" / name for name, _ in handles[0]["files"]]
    compact(iceberg, sink)
    sink.commit(handles[1], lambda: None)
    expire(sink)
    # Of what was rewritten the file is gone, and nothing of what waits to be added.
    assert not first.exists()
    # Prepared before, committed after; and committed before, asked after.
    sink.commit(handles[2], lambda: None)
    again = sink_of(iceberg, tmp_path, rows)
    again.commit(handles[2], lambda: None)
    # The property tells of the third, and the snapshots still do of the second.
    again.commit(handles[1], lambda: None)
    with pytest.raises(SinkError, match="its snapshots no longer say whose files epoch 1 added"):
        again.commit(handles[0], lambda: None)
    # Somebody unsets the property: the snapshots say it.
    again.table._load().updateProperties().remove(APPLICATION).commit()
    again.commit(handles[2], lambda: None)
    assert numbers(iceberg, tmp_path) == [1, 1, 1]


def test_another_copy_of_the_home_is_told_by_its_transaction(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    own, other = prepared(sink, rows, 1), prepared(sink, rows, 1, OTHER_RUN)
    sink.commit(own, lambda: None)
    with pytest.raises(CopiedHomeError, match="another copy of this home"):
        sink.commit(other, lambda: None)
    assert numbers(iceberg, tmp_path) == [1]


def test_files_of_before_a_change_are_added_if_they_fit(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1 AS n")
    sink = sink_of(iceberg, tmp_path, rows)
    handles = [prepared(sink, rows, epoch) for epoch in (1, 2)]
    table = sink.table._load()
    long = iceberg._jvm.org.apache.iceberg.types.Types.LongType.get()  # type: ignore[union-attr]
    table.updateSchema().renameColumn("n", "m").updateColumn("n", long).addColumn("x", long).commit()
    table.updateSpec().addField("k").commit()
    sink.commit(handles[0], lambda: None)
    assert IcebergReader(iceberg, tmp_path).rows() == [{"k": "a", "m": 1, "x": None}]
    table.refresh()
    table.updateSchema().deleteColumn("m").commit()
    with pytest.raises(SinkError, match=r"was changed after epoch 2 had been written .* it no longer has a column 'n'"):
        sink.commit(handles[1], lambda: None)


def test_a_column_that_others_drop_ends_the_query_and_keeps_what_is_decided(
    iceberg: SparkSession, tmp_path: Path
) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n, named_struct('x', 2L, 'y', 3L) AS s")
    sink = sink_of(iceberg, tmp_path, rows)
    decided = prepared(sink, rows, 1)
    table = sink.table._load()
    # What was written before still fits, and so do later epochs.
    table.updateSchema().renameColumn("k", "key").commit()
    also = prepared(sink, rows, 2)
    table.updateSchema().deleteColumn("n").deleteColumn("s.y").commit()
    with pytest.raises(SinkError, match=r"was changed while the query was running\. It no longer has a column 'n'\. N"):
        sink.prepare(rows, transaction(3, run=RUN))
    # A start with a result that fits publishes first what was decided before.
    less = iceberg.sql("SELECT 'b' AS key, named_struct('x', 2L) AS s")
    again = sink_of(iceberg, tmp_path, less)
    again.commit_all([decided, also], lambda: None)
    again.commit(prepared(again, less, 3), lambda: None)
    found = IcebergReader(iceberg, tmp_path).rows()
    assert sorted(row["key"] for row in found) == ["a", "a", "b"]
    assert {row["s"] for row in found} == {"Record(2)"}
    for file in (tmp_path / "metadata").iterdir():
        file.unlink()
    with pytest.raises(SinkError, match=r"The Iceberg table .* no longer exists\. Nothing of the epoch is decided"):
        again.prepare(less, transaction(4, run=RUN))


def test_a_recreated_table_is_given_no_files_from_before(iceberg: SparkSession, tmp_path: Path) -> None:
    """Its ids are those of other columns, as 'a' and 'b' here would change places."""
    rows = iceberg.sql("SELECT 'a' AS a, 'b' AS b")
    sink = sink_of(iceberg, tmp_path, rows)
    handle = prepared(sink, rows, 1)
    for file in (tmp_path / "metadata").iterdir():
        file.unlink()
    sink.table.create(new_schema(rows.select("b", "a").schema), {"spec-id": 0, "fields": []})
    with pytest.raises(SinkError, match=r"epoch 1 had been written .* it was dropped and recreated"):
        sink.commit(handle, lambda: None)
    assert IcebergReader(iceberg, tmp_path).rows() == []


def compact(spark: SparkSession, sink: IcebergSink) -> None:
    """As ``rewrite_data_files``, each file into another one with its rows."""
    table = sink.table._load()
    rewriting = table.newRewrite()
    builder = static_method(spark, "org.apache.iceberg.DataFiles.builder")
    for task in each(table.newScan().planFiles()):
        old = Path(task.file().location().removeprefix("file:"))
        new = old.with_name(f"rewritten-{old.name}")
        shutil.copy(old, new)
        rewriting.deleteFile(task.file())
        rewriting.addFile(builder(table.spec()).copy(task.file()).withPath(f"file:{new}").build())
    rewriting.commit()


def expire(sink: IcebergSink) -> None:
    """As ``expire_snapshots(retain_last => 1)`` at once."""
    now = 1 << 45
    sink.table._load().expireSnapshots().expireOlderThan(now).retainLast(1).commit()


VALUES = """
  'a' AS text, {n}L AS n, CAST({n} AS INT) AS i, CAST({n} AS SMALLINT) AS s, CAST({n} AS TINYINT) AS b,
  1.5F AS f, 2.5D AS d, CAST('12.50' AS DECIMAL(6, 2)) AS dec, true AS yes, X'00FF' AS bin,
  DATE'{day}' AS day, TIMESTAMP'{time}' AS ts, TIMESTAMP_NTZ'{time}' AS ntz
"""
NESTED = ", struct({n} AS x, struct('q' AS z) AS y) AS st"
BY_NAMES = ", map('k', {n}) AS m, array(struct({n} AS e)) AS a"
EDGES = [
    {"n": 1, "day": "2026-03-29", "time": "2026-03-29 02:30:00.123456"},
    {"n": -5, "day": "1969-12-31", "time": "1969-12-31 23:59:59.999999"},
    {"n": 0, "day": "0001-01-01", "time": "0001-01-01 00:00:00"},
]


@pytest.mark.parametrize("more", [NESTED, BY_NAMES], ids=["by ids", "by names"])
def test_all_types_come_back_and_their_bounds_skip_files(iceberg: SparkSession, tmp_path: Path, more: str) -> None:
    batches = [iceberg.sql(f"SELECT {(VALUES + more).format(**edge)}") for edge in EDGES]
    sink = sink_of(iceberg, tmp_path, batches[0])
    for epoch, batch in enumerate(batches, 1):
        written(sink, batch, epoch)
    reader = IcebergReader(iceberg, tmp_path)
    found = {row["n"]: row for row in reader.rows()}
    for edge in EDGES:
        row = found[edge["n"]]
        assert (row["i"], row["s"], row["b"], row["f"], row["d"], row["yes"]) == (*[edge["n"]] * 3, 1.5, 2.5, True)
        assert (str(row["dec"]), row["day"], row["bin"]) == ("12.50", edge["day"], b"\x00\xff")
        local = str(edge["time"]).replace(" ", "T")
        assert local.startswith(row["ntz"])
    if more == NESTED:
        assert found[1]["st"] == "Record(1, Record(q))"
    else:
        assert (found[1]["m"], found[1]["a"]) == ("{k=1}", "[Record(1)]")
    others = {row["n"]: row for row in by_pyiceberg(reader.version)}
    assert {n: [str(row["dec"]), row["day"].isoformat(), row["bin"]] for n, row in others.items()} == {
        edge["n"]: ["12.50", edge["day"], b"\x00\xff"] for edge in EDGES
    }
    nested = {"st": {"x": 1, "y": {"z": "q"}}} if more == NESTED else {"m": [("k", 1)], "a": [{"e": 1}]}
    assert {name: others[1][name] for name in nested} == nested
    assert [row["n"] for row in by_pyiceberg(reader.version, "day < '1950-01-01'")] == [0]
    by_day = "SELECT n, CAST(dec AS VARCHAR), bin FROM t WHERE day < DATE '1950-01-01'"
    assert by_duckdb(reader.version, by_day) == [(0, "12.50", b"\x00\xff")]
    assert len(reader.files()) == 3
    assert len(reader.files("n", "greaterThan", 0)) == 1
    assert len(reader.files("day", "lessThan", "1950-01-01")) == 1
    assert len(reader.files("ntz", "greaterThanOrEqual", "1969-12-31T23:59:59.999999")) == 2


@pytest.mark.parametrize(
    ("sql", "by", "message"),
    [
        ("SELECT 1 AS n", ("x",), "partitionBy: no column 'x'"),
        ("SELECT 1D AS n, 1 AS m", ("n",), r"is partitioned by 'n' \(identity\), which sparkjet does not write"),
        ("SELECT 'a' AS n, 1 AS m", ("days(n)",), "is partitioned by 'n_day'"),
        ("SELECT INTERVAL '1' DAY AS i", (), "column 'i' is interval day, and Iceberg has no interval day"),
        ("SELECT map('k', struct()) AS e, 1 AS n", (), "column 'e' is .*, and Parquet has no struct without fields"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    iceberg: SparkSession, tmp_path: Path, sql: str, by: tuple[str, ...], message: str
) -> None:
    with pytest.raises(AnalysisError, match=message):
        IcebergSink(PathTable(iceberg, PosixDirectory(tmp_path / "t")), iceberg, by).check(iceberg.sql(sql).schema)
    assert not (tmp_path / "t").exists()


def test_a_directory_that_is_not_a_table_is_refused(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql("SELECT 1 AS n")
    (tmp_path / "part-0.parquet").write_bytes(b"")
    with pytest.raises(AnalysisError, match=r"is not an Iceberg table, but has part-0\.parquet in it"):
        IcebergSink(PathTable(iceberg, PosixDirectory(tmp_path)), iceberg).check(rows.schema)
    # As a store may have one whose means to have one winner were looked at.
    (tmp_path / "new" / "metadata").mkdir(parents=True)
    sink_of(iceberg, tmp_path / "new", rows)


def test_nulls_are_refused_where_the_table_has_none_before_the_decision(iceberg: SparkSession, tmp_path: Path) -> None:
    require_n(iceberg, tmp_path)
    rows = iceberg.sql("SELECT k, n FROM VALUES ('a', 1L), ('b', CAST(NULL AS BIGINT)) AS t(k, n)")
    sink = sink_of(iceberg, tmp_path, rows)
    with pytest.raises(RefusedRowsError, match=r"column 'n' has a null, and .* has it NOT NULL"):
        sink.prepare(rows, transaction(1))
    sink.abort(transaction(1))
    written(sink, rows.where("n IS NOT NULL"), 2)
    assert numbers(iceberg, tmp_path) == [1]
