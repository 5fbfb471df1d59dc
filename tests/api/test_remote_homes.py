"""A query whose home and files are on HDFS or S3 gives what it has to give, across a restart."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.cli.transactions import _record
from sparkjet.errors import AnalysisError
from sparkjet.storage.local_directory import local_directory
from tests.feed import START, Feed, rows
from tests.servers.programs import free_port
from tests.servers.s3 import BUCKET
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.storage.hadoop_target import hadoop_directory, through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


Results = list[tuple[int, str | None, int, int]]


class _DeathError(Exception):
    """Stands for the death of the driver."""


def run(spark: SparkSession, feed: Feed, home: str, out: str, dies: int | None = None) -> Results:
    """Start the query on all that is there, and wait for its end; returns what was delivered by the outbox.

    Args:
        spark: The session.
        feed: The input.
        home: Where its snapshots are.
        out: Where its files are.
        dies: The epoch that is decided when the driver dies, of which nothing is published.
    """
    delivered: Results = []

    def die(phase: sj.EpochPhase, epoch: int) -> None:
        if phase is sj.EpochPhase.DECIDE and epoch == dies:
            raise _DeathError

    def collect(batch: DataFrame, epoch: int) -> None:
        start = (F.unix_seconds("window.start") - START).alias("start")
        delivered.extend(map(tuple, batch.select(start, "k", "n", "total").collect()))

    stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds")
    result = stream.groupBy(sj.window("ts", "10 seconds", "5 seconds"), "k").agg(
        F.count("*").alias("n"), F.sum("v").alias("total")
    )
    files = result.writeStream.format("files").option("path", out).option("lateRowsPath", f"{out}-late")
    files = files.trigger(availableNow=True)
    calls = result.writeStream.foreachBatch(collect).option("checkpointLocation", home).option("statePartitions", 2)
    query = sj.start(calls.onEpochPhase(die), files)
    with nullcontext() if dies is None else pytest.raises(_DeathError):
        query.awaitTermination()
    return delivered


def twice(spark: SparkSession, feed: Feed, home: str, out: str) -> tuple[Results, Results, list[int]]:
    """The deliveries of two runs over a growing feed, and the final content of the files, also those of late rows.

    The driver of the first dies, and the second is on another machine.
    """
    feed.add(*rows([0, 3, 7], k="a", v=1), *rows([4], k=None, v=5))
    feed.add(*rows([12, 18], k="a", v=2), *rows([14], k="b", v=7))
    delivered = run(spark, feed, home, out, dies=2)
    tempfile.tempdir = tempfile.mkdtemp()
    feed.add(*rows([21, 26, 40], k="b", v=3))
    feed.add(*rows([60], k="a", v=4))
    feed.add(*rows([5, 9], k="c", v=8))
    delivered += run(spark, feed, home, out)
    start = (F.unix_seconds("window.start") - START).alias("start")
    written = sj.read_files(out).select(start, "k", "n", "total").collect()
    late = sj.read_files(f"{out}-late").select("v").collect()
    # A plain reader sees the same: what is staged is hidden.
    assert spark.read.parquet(out).count() == len(written)
    return sorted(delivered, key=repr), sorted(map(tuple, written), key=repr), [row.v for row in late]


def closed() -> Results:
    """The windows up to the watermark, of the rows of `twice` that are not late."""
    given = [(0, "a", 1), (3, "a", 1), (7, "a", 1), (4, None, 5), (12, "a", 2), (18, "a", 2), (14, "b", 7)]
    given += [(21, "b", 3), (26, "b", 3), (40, "b", 3), (60, "a", 4)]
    found: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for time, key, value in given:
        for start in (time // 5 * 5, time // 5 * 5 - 5):
            if start + 10 <= 60 - 5:
                found[start, key].append(value)
    return [(start, key, len(values), sum(values)) for (start, key), values in found.items()]


def check(spark: SparkSession, place: Path, home: str) -> None:
    delivered, written, late = twice(spark, Feed(place / "in"), home, f"{home}-out")
    assert delivered == written == sorted(closed(), key=repr)
    assert late == [8, 8]
    # Everything that a start needs is in the store, and Spark's own checkpoint is not.
    kept = hadoop_directory(spark, home).files()
    assert {name.split("/")[1] for name in kept} == {"log", "state", "blobs", "outbox"}
    assert any((local_directory(home)).iterdir())
    # The command line finds the record there too.
    assert _record(home, []).transactions == []
    # And what is still open can be read.
    assert sj.read_state(home, session=spark).select("k", "n", "total").collect() == [("a", 1, 4)] * 2


@pytest.mark.long
def test_on_hdfs(spark: SparkSession, hdfs: HdfsServer, tmp_path: Path) -> None:
    home = f"{hdfs.uri}/{uuid4().hex}/home"
    check(spark, tmp_path, home)
    told = sj.erase(home, {"k": "a"}, rows=[f"{home}-out", f"{home}-out-late"], session=spark)
    assert all(each.rows for each in told.places[:2])
    assert sj.read_state(home, session=spark).collect() == []
    assert spark.read.parquet(f"{home}-out").where("k = 'a'").count() == 0


# In CI, the store's contract, the farm's homes and the outages are on S3, and each call below on a path.
@pytest.mark.long
def test_on_s3(s3_spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    check(s3_spark, tmp_path, f"s3a://{BUCKET}/{uuid4().hex}/home")


def test_a_home_on_an_untested_file_system_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([0], k="a", v=1))
    with pytest.raises(AnalysisError, match=r'checkpointLocation: .*"nosuch'):
        run(spark, feed, "nosuch://host/home", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_store_that_does_not_answer_is_named(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([0], k="a", v=1))
    nobody = free_port()
    spark.conf.set("ipc.client.connect.max.retries", 0)
    try:
        with pytest.raises(
            AnalysisError, match=rf'checkpointLocation: "hdfs://127.0.0.1:{nobody}/home" cannot be read'
        ):
            run(spark, feed, f"hdfs://127.0.0.1:{nobody}/home", str(tmp_path / "out"))
    finally:
        spark.conf.unset("ipc.client.connect.max.retries")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", ["no bucket", "no permission"])
def test_files_that_cannot_be_written_are_refused_before_anything_is_created(
    s3_spark: SparkSession, s3: S3Server, tmp_path: Path, case: str
) -> None:
    feed, home = Feed(tmp_path / "in"), tmp_path / "home"
    feed.add(*rows([0], k="a", v=1))
    name, bucket = uuid4().hex, BUCKET if case == "no permission" else "nosuch"
    out = f"s3a://{bucket}/{name}"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        proxy.planned.extend([Fault.DENIED] * 100)
        with pytest.raises(AnalysisError, match=f'path: "{out}/_sparkjet" cannot hold decisions'):
            run(s3_spark, feed, str(home), out)
    assert not home.exists()
    assert not hadoop_directory(s3_spark, f"s3a://{BUCKET}/{name}").exists()
