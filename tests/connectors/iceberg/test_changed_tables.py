"""Iceberg tables that are not as a sink makes them: other columns, branches, formats and orders, or tampered with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.api.sink_formats import sink_format
from sparkjet.clock import SystemClock
from sparkjet.connectors.iceberg.library import PathTable
from sparkjet.connectors.iceberg.schema import new_schema
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.java import java_class, static_method
from sparkjet.options import Options
from sparkjet.storage.posix_directory import PosixDirectory
from tests.connectors.iceberg.reading import IcebergReader, each
from tests.connectors.iceberg.test_iceberg import APPLICATION, numbers, prepared, sink_of, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.iceberg.version import Version

ROW = "SELECT 'a' AS k, 1L AS n"


def merging(spark: SparkSession, table: PathTable, rows: DataFrame) -> IcebergSink:
    """A sink that may add columns, as it is checked and not yet started."""
    sink = IcebergSink(table, spark, merge_schema=True)
    sink.check(rows.schema)
    return sink


def number_of(sink: IcebergSink) -> int:
    version = sink.table.version()
    assert version is not None
    return version.number


def test_new_columns_are_a_separate_commit_and_a_crash_after_it_loses_nothing(
    iceberg: SparkSession, tmp_path: Path
) -> None:
    rows, table = iceberg.sql(ROW), PathTable(iceberg, PosixDirectory(tmp_path))
    before = sink_of(iceberg, tmp_path, rows)
    written(before, rows)
    decided = prepared(before, rows, 2)
    more = iceberg.sql(f"{ROW}, 2 AS x, array(named_struct('y', 3)) AS `a.b`")
    with pytest.raises(AnalysisError, match="has no column 'x'"):
        sink_of(iceberg, tmp_path, more)
    dying = merging(iceberg, table, more)
    assert number_of(dying) == 2
    dying.create()
    assert number_of(dying) == 3
    # It dies here; the next one finds the columns, and publishes what was decided without them.
    again = merging(iceberg, table, more)
    again.create()
    assert number_of(again) == 3
    again.commit(decided, lambda: None)
    again.commit(prepared(again, more, 3), lambda: None)
    found = sorted(IcebergReader(iceberg, tmp_path).rows(), key=lambda row: str(row["x"]))
    assert found == [
        {"k": "a", "n": 1, "x": 2, "a.b": "[Record(3)]"},
        *[{"k": "a", "n": 1, "x": None, "a.b": None}] * 2,
    ]


def test_merging_adds_columns_and_changes_none(iceberg: SparkSession, tmp_path: Path) -> None:
    sink = sink_of(iceberg, tmp_path, iceberg.sql("SELECT 'a' AS k, 1 AS n"))
    table = PathTable(iceberg, PosixDirectory(tmp_path))
    for rows, message in (
        ("SELECT 'a' AS k, 1L AS n, 2 AS x", "column 'n' is bigint, and in .* it is int"),
        ("SELECT 'a' AS k, 2 AS x, 3 AS X", "the result has columns 'x' and 'X', which Spark takes for one"),
        ("SELECT 'a' AS k, INTERVAL '1' DAY AS x", "Iceberg has no interval day"),
    ):
        with pytest.raises(AnalysisError, match=message):
            merging(iceberg, table, _of(iceberg, rows))
    assert number_of(sink) == 1


def test_two_drivers_add_a_column_once(iceberg: SparkSession, tmp_path: Path) -> None:
    sink_of(iceberg, tmp_path, iceberg.sql(ROW))
    more = iceberg.sql(f"{ROW}, 2 AS x")
    others = [merging(iceberg, PathTable(iceberg, PosixDirectory(tmp_path)), more)]

    class Slow(PathTable):
        def _commit(self, version: Version, metadata: Any) -> bool:
            while others:
                others.pop().create()
            return super()._commit(version, metadata)

    sink = merging(iceberg, Slow(iceberg, PosixDirectory(tmp_path)), more)
    sink.create()
    assert number_of(sink) == 2
    written(sink, more)
    assert [field["name"] for field in IcebergReader(iceberg, tmp_path).version.schema["fields"]] == ["k", "n", "x"]


def test_a_branch_is_given_rows_that_the_table_does_not_have(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql(ROW)
    main = sink_of(iceberg, tmp_path, rows)
    written(main, rows)
    audit = IcebergSink(main.table, iceberg, branch="audit")
    with pytest.raises(AnalysisError, match=r'has no branch "audit", but main\. Create it: ALTER TABLE … CREATE'):
        audit.check(rows.schema)
    table = main.table._load()
    table.manageSnapshots().createBranch("audit").commit()
    audit.check(rows.schema)
    audit.create()
    handles = [prepared(audit, rows, epoch) for epoch in (2, 3, 4)]
    for handle in handles[:2]:
        audit.commit(handle, lambda: None)
    # Of an epoch before the newest, the snapshots of the branch tell.
    again = IcebergSink(main.table, iceberg)
    again.check(rows.schema)
    again.create()
    again.commit(handles[0], lambda: None)
    assert numbers(iceberg, tmp_path) == [1]
    table.refresh()
    assert [table.snapshot(name).summary()["total-records"] for name in ("main", "audit")] == ["1", "3"]
    # The property is the table's: it says where the rows are.
    version = main.table.version()
    assert version is not None
    properties = [text for name, text in version.properties.items() if name.startswith("sparkjet/")]
    assert [json.loads(text)["branch"] for text in properties] == ["audit"]
    table.manageSnapshots().removeBranch("audit").commit()
    with pytest.raises(SinkError, match=r"it no longer has a branch 'audit'\. Make the table what it was"):
        again.commit(handles[2], lambda: None)


def test_options_are_those_of_the_writer(iceberg: SparkSession, tmp_path: Path) -> None:
    options = Options({"path": str(tmp_path), "Branch": "audit", "mergeschema": "true"})
    given: dict[str, Any] = {"partition_by": (), "query": "", "session": iceberg, "clock": SystemClock()}
    sink = sink_format("iceberg").create(options, **given)
    assert isinstance(sink, IcebergSink)
    assert (sink.branch, sink.merge_schema) == ("audit", True)


def test_a_table_that_is_not_there_has_no_branch(iceberg: SparkSession, tmp_path: Path) -> None:
    sink = IcebergSink(PathTable(iceberg, PosixDirectory(tmp_path / "t")), iceberg, branch="audit")
    with pytest.raises(AnalysisError, match='has no branch "audit"'):
        sink.check(iceberg.sql(ROW).schema)


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.long), 3])
def test_other_formats_are_written_as_their_readers_want_them(
    iceberg: SparkSession, tmp_path: Path, number: int
) -> None:
    rows = iceberg.sql(ROW)
    schema = static_method(iceberg, "org.apache.iceberg.SchemaParser.fromJson")(json.dumps(new_schema(rows.schema)))
    spec = static_method(iceberg, "org.apache.iceberg.PartitionSpecParser.fromJson")(
        schema, json.dumps({"spec-id": 0, "fields": [{"name": "k", "transform": "identity", "source-id": 1}]})
    )
    properties = java_class(iceberg, "java.util.HashMap")()
    properties.put("format-version", str(number))
    PathTable(iceberg, PosixDirectory(tmp_path)).enter()
    tables = java_class(iceberg, "org.apache.iceberg.hadoop.HadoopTables")()
    table = tables.create(schema, spec, properties, f"file://{tmp_path}")
    # An order is a wish, and what identifies rows is not looked at, as in Iceberg's own appends.
    by_n = static_method(iceberg, "org.apache.iceberg.expressions.Expressions.ref")("n")
    table.replaceSortOrder().asc(by_n, java_class(iceberg, "org.apache.iceberg.NullOrder").NULLS_FIRST).commit()
    table.updateSchema().allowIncompatibleChanges().requireColumn("k").setIdentifierFields(
        _names(iceberg, "k")
    ).commit()
    sink = sink_of(iceberg, tmp_path, rows)
    handles = [prepared(sink, rows, epoch) for epoch in (1, 2)]
    for handle in [*handles, *handles]:
        sink.commit(handle, lambda: None)
    assert numbers(iceberg, tmp_path) == [1, 1]
    found = IcebergReader(iceberg, tmp_path).version
    assert (found.format, found.schema["identifier-field-ids"]) == (number, [1])
    tasks = [*each(found.java.newScan().planFiles())]
    assert [task.file().sortOrderId() or 0 for task in tasks] == [0, 0]
    if number == 3:
        assert (found.base.nextRowId(), sorted(task.file().firstRowId() for task in tasks)) == (2, [0, 1])


def test_manifests_that_were_merged_are_gone(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql(ROW)
    sink = sink_of(iceberg, tmp_path, rows)
    sink.table._load().updateProperties().set("commit.manifest.min-count-to-merge", "2").commit()
    for epoch in (1, 2, 3):
        written(sink, rows, epoch)
    version = IcebergReader(iceberg, tmp_path).version
    named = {str(snapshot.manifestListLocation()) for snapshot in version.base.snapshots()}
    for snapshot in version.base.snapshots():
        named |= {str(manifest.path()) for manifest in snapshot.allManifests(version.java.io())}
    assert len(list(version.base.currentSnapshot().allManifests(version.java.io()))) == 1
    assert {path.name for path in (tmp_path / "metadata").glob("*.avro")} == {Path(name).name for name in named}
    assert numbers(iceberg, tmp_path) == [1, 1, 1]


def keep_one_version(sink: IcebergSink) -> None:
    """Have a table's commits remove older metadata."""
    update = sink.table._load().updateProperties()
    update.set("write.metadata.delete-after-commit.enabled", "true")
    update.set("write.metadata.previous-versions-max", "1").commit()


def test_a_hint_at_a_version_that_was_removed_is_corrected(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql(ROW)
    sink = sink_of(iceberg, tmp_path, rows)
    keep_one_version(sink)
    for epoch in (1, 2):
        written(sink, rows, epoch)
    assert not (tmp_path / "metadata" / "v1.metadata.json").exists()
    (tmp_path / "metadata" / "version-hint.text").write_text("1")
    assert number_of(sink) == 4
    assert (tmp_path / "metadata" / "version-hint.text").read_text() == "4"
    assert numbers(iceberg, tmp_path) == [1, 1]


def test_a_commit_that_comes_when_its_version_was_removed_takes_nothing_back(
    iceberg: SparkSession, tmp_path: Path
) -> None:
    rows = iceberg.sql(ROW)
    sink = sink_of(iceberg, tmp_path, rows)
    keep_one_version(sink)
    stale, zombie = sink.table.version(), prepared(sink, rows, 1)
    assert stale is not None
    # Its successor, while it sleeps.
    sink.commit(zombie, lambda: None)
    for epoch in (2, 3):
        written(sink, rows, epoch)
    left = {"v4.metadata.json", "v5.metadata.json"}
    assert {path.name for path in (tmp_path / "metadata").glob("v*.json")} == left
    assert not sink._append(sink.table, stale, [zombie])
    assert {path.name for path in (tmp_path / "metadata").glob("v*.json")} == left
    assert (tmp_path / "metadata" / "version-hint.text").read_text() == "5"
    assert numbers(iceberg, tmp_path) == [1, 1, 1]


def test_a_property_that_no_query_has_written_is_named(iceberg: SparkSession, tmp_path: Path) -> None:
    rows = iceberg.sql(ROW)
    sink = sink_of(iceberg, tmp_path, rows)
    handle = written(sink, rows)
    sink.table._load().updateProperties().set(APPLICATION, '{"last": 1}').commit()
    with pytest.raises(
        SinkError, match=rf"The property {APPLICATION} of .* is '\{{\"last\": 1\}}', which no query has"
    ):
        sink.commit(handle, lambda: None)
    # A summary of others is not ours.
    sink.table._load().updateProperties().remove(APPLICATION).commit()
    sink.table._load().newFastAppend().set("sparkjet", '{"epoch": "one"}').commit()
    sink.commit(handle, lambda: None)
    assert numbers(iceberg, tmp_path) == [1]


def _of(spark: SparkSession, sql: str) -> DataFrame:
    """Rows whose columns may differ by case."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        return spark.sql(sql)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def _names(spark: SparkSession, *names: str) -> Any:
    found = java_class(spark, "java.util.HashSet")()
    for name in names:
        found.add(name)
    return found
