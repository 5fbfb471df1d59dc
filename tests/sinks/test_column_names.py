"""Two columns of one name are refused at the start by every sink that stores rows, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.api.writer import StreamWriter
from sparkjet.sinks import OutboxSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ts timestamp, id long, v long"


class OwnOutbox(OutboxSink):
    """A sink of a user's that publishes nothing."""

    def publish(self, rows: DataFrame, epoch: int) -> None:
        """See :meth:`OutboxSink.publish`."""


SINKS: dict[str, Callable[[StreamWriter, Path], Any]] = {
    "files": lambda w, home: w.format("files").start(f"{home}/out"),
    "table": lambda w, home: w.toTable("twice", path=f"{home}/out"),
    "memory": lambda w, home: w.format("memory").queryName("twice").start(),
    "console": lambda w, home: w.format("console").start(),
    "foreach": lambda w, home: w.foreach(print).start(),
    "foreachBatch": lambda w, home: w.foreachBatch(lambda rows, epoch: None).start(),
    "postgres": lambda w, home: w.format("postgres").options(dsn="dbname=nowhere", dbtable="t").start(),
    "OwnOutbox": lambda w, home: w.format(OwnOutbox()).start(),
}
HERE = r"^\[SPARKJET_ANALYSIS\] start: "
STORES = 'the sink "{}" stores rows by the names of their columns, and '


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> sj.Stream:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"ts": "2026-01-01 12:00:00", "id": 7, "v": 1}\n')
    return sj.stream(spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in"))


def writer(result: Any, home: Path) -> StreamWriter:
    made: StreamWriter = result.writeStream.option("checkpointLocation", f"{home}/ck").trigger(availableNow=True)
    return made


@pytest.mark.parametrize("sink", SINKS)
def test_a_name_that_comes_twice_is_refused_before_anything_is_made(rows: sj.Stream, tmp_path: Path, sink: str) -> None:
    message = HERE + STORES.format(sink) + "two columns of the result are named 'id'. Drop one"
    with pytest.raises(sj.AnalysisError, match=message):
        SINKS[sink](writer(rows.select("id", "v", "id"), tmp_path), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def two_sides(rows: sj.Stream) -> Any:
    sides = [rows.withWatermark("ts", 0).alias(name) for name in "ab"]
    return sides[0].join(sides[1], F.expr("a.id = b.id AND a.ts = b.ts"))


ALIKE: dict[str, tuple[Callable[[sj.Stream], Any], str]] = {
    "by case": (lambda s: s.select("id", F.col("v").alias("Id")), "names of two columns of the result, 'id' and 'Id'"),
    "a join": (two_sides, "two columns of the result are named 'ts'"),
    "a table": (lambda s: s.join(s._chain.shape.sparkSession.range(3), F.expr("v = 1")), "are named 'id'"),
    "a struct": (lambda s: s.select(F.struct("id", "id").alias("s")), "two fields of 's' are named 'id'"),
    "an array of structs": (
        lambda s: s.select(F.struct(F.array(F.struct("id", F.col("v").alias("ID"))).alias("all")).alias("s")),
        "names of two fields of 's.all', 'id' and 'ID'",
    ),
    "a map": (lambda s: s.select(F.create_map("id", F.struct("v", "v")).alias("m")), "two fields of 'm'"),
    "a result": (
        lambda s: s.withWatermark("ts", 0).groupBy(sj.window("ts", "1 second"), "id").count().select("count", "count"),
        "named 'count'",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_names_are_alike_as_spark_has_them(rows: sj.Stream, tmp_path: Path, case: str) -> None:
    query, message = ALIKE[case]
    with pytest.raises(sj.AnalysisError, match=message):
        SINKS["files"](writer(query(rows), tmp_path), tmp_path)


@pytest.fixture
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.usefixtures("case_sensitive")
def test_a_case_sensitive_session_stores_names_that_differ_by_case(
    spark: SparkSession, rows: sj.Stream, tmp_path: Path
) -> None:
    twice = rows.select("id", F.col("v").alias("ID"))
    SINKS["files"](writer(twice, tmp_path), tmp_path).awaitTermination()
    assert [tuple(row) for row in spark.read.parquet(f"{tmp_path}/out").select("id", "ID").collect()] == [(7, 1)]
    with pytest.raises(sj.AnalysisError, match="are named 'id'"):
        SINKS["memory"](writer(rows.select("id", "id"), tmp_path), tmp_path)


def test_what_stores_nothing_takes_them(rows: sj.Stream, tmp_path: Path) -> None:
    query = writer(rows.select("id", "id"), tmp_path).format("noop").start()
    query.awaitTermination()
    assert query.lastProgress is not None
