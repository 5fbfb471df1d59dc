"""Tables that a connector for Spark makes, keeps in order and reads, while sparkjet writes: its own program.

Usage: ``python -m tests.versions.connectors delta|iceberg DIRECTORY``. A session has a connector's extensions from its
start on, and each connector is for one line of Spark.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import sparkjet as sj
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.connectors.iceberg.library import CatalogTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError, LostTransactionError, RecoveryError, SinkError
from sparkjet.java import java_class, static_method
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, transaction
from tests.api.test_backfill import Archived
from tests.servers.iceberg import library
from tests.servers.programs import SMALL, jars
from tests.versions import following

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle

LATER = 1 << 45
"""Milliseconds since 1970, after every file."""
CONNECTOR = Path(__file__).parents[2] / "benchmarks" / "delta_connector.xml"


def session(place: Path, jars_of: Sequence[Path], settings: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars_of)))
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
    # Tasks that list directories; there are ten thousand by default.
    builder = builder.config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(SMALL[:2]))
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def begun(sink: Any, spark: SparkSession, schema: str) -> Any:
    sink.check(spark.createDataFrame([], schema).schema)
    sink.create()
    return sink


def prepared(sink: Any, spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str, epoch: int) -> Handle:
    handle: Handle | None = sink.prepare(
        spark.createDataFrame([*rows], schema).coalesce(1), transaction(epoch, run=RUN)
    )
    assert handle is not None
    return handle


def fails(kind: type[Exception], action: Callable[[], object]) -> None:
    try:
        action()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def delta(place: Path) -> None:
    spark = session(place, sorted(jars(CONNECTOR).glob("*.jar")), {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "2",
    })  # fmt: skip
    _mapped(spark, place / "mapped")
    _kept(spark, place / "kept")
    table = str(place / "archive")
    case = Archived(spark, place, "delta", table)
    case.check(lambda: spark.sql(f"OPTIMIZE delta.`{table}`"))
    # Another table in its place has other rows in versions of the same numbers.
    begun_with = sj.written("delta", table).newest().version
    assert sj.written("delta", table).at(begun_with).count() == 660
    for folder in (table, place / "archiving"):
        shutil.rmtree(folder)
    for _ in range(2):
        case.archive(p0=420, p1=420, p2=60)
    fails(RecoveryError, lambda: sj.written("delta", table).at(begun_with))
    following.delta(spark, place / "followed")


def _mapped(spark: SparkSession, place: Path) -> None:
    """A table whose columns were renamed, dropped and added again."""
    table = f"delta.`{place}`"
    columns = "k STRING, `day of` STRING, gone LONG, n LONG, s STRUCT<x: LONG>"
    mode = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta PARTITIONED BY (`day of`) {mode}")
    spark.sql(f"INSERT INTO {table} VALUES ('theirs', 'd/1', 1, 1, struct(1L))")
    for change in ("RENAME COLUMN n TO m", "DROP COLUMN gone", "ADD COLUMN gone LONG", "RENAME COLUMN s.x TO y"):
        spark.sql(f"ALTER TABLE {table} {change}")
    schema = "m long, `day of` string, k string, s struct<y: long>, gone long"
    sink = begun(DeltaSink(PosixDirectory(place), spark), spark, schema)
    handles = [prepared(sink, spark, [(n, f"d={n}", "ours", (n,), n)], schema, n) for n in (2, 3)]
    for handle in (*handles, *handles):
        sink.commit(handle, lambda: None)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN m TO n")
    found = spark.sql(f"SELECT k, `day of`, n, s.y, gone FROM {table} ORDER BY n").collect()
    assert [tuple(row) for row in found] == [
        ("theirs", "d/1", 1, 1, None),
        ("ours", "d=2", 2, 2, 2),
        ("ours", "d=3", 3, 3, 3),
    ]
    found = spark.sql(f"SELECT n FROM {table} WHERE n > 2")
    assert len(found.inputFiles()) == 1
    assert [row.n for row in found.collect()] == [3]
    spark.sql(f"OPTIMIZE {table}")
    assert spark.table(table).count() == 3


def _kept(spark: SparkSession, place: Path) -> None:
    """Maintenance between files and their version, and between a version and a restart."""
    table, schema = f"delta.`{place}`", "k string, n long"
    sink = begun(DeltaSink(PosixDirectory(place), spark, keys=("k",)), spark, schema)
    handles = [prepared(sink, spark, [("a", n), (f"{n}", n)], schema, n) for n in (1, 2, 3)]
    for handle in handles[:2]:
        sink.commit(handle, lambda: None)
    spark.sql(f"OPTIMIZE {table}")
    sink.commit(handles[2], lambda: None)
    late = prepared(sink, spark, [("a", 4)], schema, 4)
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    again = begun(DeltaSink(PosixDirectory(place), spark, keys=("k",)), spark, schema)
    for handle in handles:
        again.commit(handle, lambda: None)
    fails(LostTransactionError, lambda: again.commit(late, lambda: None))
    found = spark.sql(f"SELECT k, n FROM {table} ORDER BY k").collect()
    assert [tuple(row) for row in found] == [("1", 1), ("2", 2), ("3", 3), ("a", 3)]
    told = spark.sql(f"DESCRIBE HISTORY {table}").where("userMetadata LIKE '%sparkjet%'")
    assert told.count() == 3


def iceberg(place: Path) -> None:
    spark = session(place, library(), {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(place),
        # The sink's commits are to be seen at once.
        "spark.sql.catalog.lake.cache-enabled": "false",
    })  # fmt: skip
    schema = "k string, n long"
    spark.sql("CREATE TABLE lake.db.t (k STRING, n BIGINT) PARTITIONED BY (bucket(2, k))")
    sink = begun(IcebergSink(CatalogTable(spark, "lake.db.t"), spark, keys=("k",)), spark, schema)
    handles = [prepared(sink, spark, [("a", n), (f"{n}", n)], schema, n) for n in (1, 2, 3, 4, 5)]
    maintained = [_rewritten, _expired, _swept]
    for handle, maintain in zip(handles, maintained, strict=False):
        sink.commit(handle, lambda: None)
        # What waits to be added stays, and what was added is not added again.
        maintain(spark)
    again = begun(IcebergSink(CatalogTable(spark, "lake.db.t"), spark, keys=("k",)), spark, schema)
    again.commit(handles[2], lambda: None)
    fails(SinkError, lambda: again.commit(handles[0], lambda: None))
    again.commit(handles[3], lambda: None)
    expected = [("1", 1), ("2", 2), ("3", 3), ("4", 4), ("a", 4)]
    assert _rows(spark) == expected
    _rewritten(spark)
    _expired(spark)
    _swept(spark)
    assert _rows(spark) == expected
    sink.commit(handles[4], lambda: None)
    assert _rows(spark) == sorted([*expected[:-1], ("5", 5), ("a", 5)])
    rewrite = "CALL lake.system.rewrite_data_files(table => 'db.archive', options => map('rewrite-all', 'true'))"
    case = Archived(spark, place, "iceberg", "lake.db.archive")
    case.check(lambda: spark.sql(rewrite).collect())
    # Rolled back it says what it has, but no more when its query has gone on.
    told = spark.table("lake.db.archive.snapshots").where("summary['sparkjet'] IS NOT NULL").orderBy("committed_at")
    back = f"CALL lake.system.rollback_to_snapshot('db.archive', {told.first()['snapshot_id']})"
    spark.sql(back).collect()
    table = sj.written("iceberg", "lake.db.archive")
    newest = table.newest()
    assert table.at(newest.version).count() == 550
    assert list(newest.offsets.values()) == ['{"0": 300, "1": 250}']
    case.archive(p0=420, p1=420, p2=60)
    fails(AnalysisError, table.newest)
    spark.sql("DROP TABLE lake.db.archive PURGE")
    fails(RecoveryError, lambda: table.at(newest.version))
    following.iceberg(spark, place)


def _rows(spark: SparkSession) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql("SELECT k, n FROM lake.db.t ORDER BY k").collect()]


def _rewritten(spark: SparkSession) -> None:
    options = "map('rewrite-all', 'true', 'delete-file-threshold', '1')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => 'db.t', options => {options})").collect()
    spark.sql("CALL lake.system.rewrite_manifests('db.t')").collect()


def _expired(spark: SparkSession) -> None:
    until = "TIMESTAMP '3000-01-01 00:00:00'"
    spark.sql(f"CALL lake.system.expire_snapshots(table => 'db.t', older_than => {until}, retain_last => 1)").collect()


def _swept(spark: SparkSession) -> None:
    """As ``remove_orphan_files``, which by SQL removes nothing that is younger than a day."""
    table = static_method(spark, "org.apache.iceberg.spark.Spark3Util.loadIcebergTable")(
        spark._jsparkSession, "lake.db.t"
    )
    actions = static_method(spark, "org.apache.iceberg.spark.actions.SparkActions.get")(spark._jsparkSession)
    actions.deleteOrphanFiles(table).olderThan(java_class(spark, "java.lang.Long").valueOf(LATER)).execute()


if __name__ == "__main__":
    {"delta": delta, "iceberg": iceberg}[sys.argv[1]](Path(sys.argv[2]))
