"""Files in HDFS and S3: the contract of sinks, renames that do not answer, and what an epoch asks of the store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import sparkjet as sj
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.spark_list import LIST
from sparkjet.testing.sink_contract import QUERY, SCHEMA, SinkContract, SinkUnderTest, transaction
from tests.parameters import mostly_crash
from tests.servers.s3 import BUCKET
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.sinks.test_files import staged, under_test
from tests.sinks.test_table import NAME, sink_of
from tests.storage.hadoop_target import hadoop_directory, through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.sinks.protocol import Handle
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.crash
"""The servers take long to start."""

ROWS = [(f"k{n}", n) for n in range(8)]


@pytest.fixture
def in_hdfs(hdfs: HdfsServer) -> str:
    return f"{hdfs.uri}/{uuid4().hex}/out dir"


@pytest.fixture
def in_s3(s3_spark: SparkSession) -> str:
    del s3_spark
    return f"s3a://{BUCKET}/{uuid4().hex}/out dir"


def sink_at(spark: SparkSession, place: str) -> FilesSink:
    sink = FilesSink(hadoop_directory(spark, place))
    sink.create()
    return sink


def prepared(spark: SparkSession, place: str, epoch: int = 1) -> Handle:
    """An epoch of four files."""
    handle = sink_at(spark, place).prepare(spark.createDataFrame(ROWS, SCHEMA).repartition(4), transaction(epoch))
    assert handle is not None
    assert len(handle["files"]) == 4
    return handle


def read(spark: SparkSession, place: str) -> list[tuple[str, int]]:
    """The rows that a plain reader and one of whole epochs see."""
    found = sorted((row.k, row.n) for row in spark.read.schema(SCHEMA).parquet(place).collect())
    assert found == sorted((row.k, row.n) for row in sj.read_files(place).collect())
    return found


@pytest.mark.long
class TestHdfs(SinkContract):
    """In CI, drivers that write there are killed in `cluster/test_standalone.py`."""

    @pytest.fixture
    def target(self, spark: SparkSession, in_hdfs: str) -> SinkUnderTest:
        return under_test(spark, FilesSink(hadoop_directory(spark, in_hdfs)))


class TestS3(SinkContract):
    """On a path the whole contract is kept in `test_files.py`, and that of directories on S3 in `storage`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
        "test_orphans_of_earlier_drivers_are_rolled_back_but_not_the_decided",
    )

    @pytest.fixture
    def target(self, s3_spark: SparkSession, in_s3: str) -> SinkUnderTest:
        return under_test(s3_spark, FilesSink(hadoop_directory(s3_spark, in_s3)))


@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_two_drivers_that_publish_the_same_epoch_at_once_publish_it_once(
    spark: SparkSession, request: pytest.FixtureRequest, store: str
) -> None:
    place: str = request.getfixturevalue(f"in_{store}")
    handle = prepared(spark, place)
    sinks = [sink_at(spark, place) for _ in range(3)]
    with ThreadPoolExecutor(3) as drivers:
        list(drivers.map(lambda sink: sink.commit(handle, lambda: None), sinks))
    assert read(spark, place) == ROWS
    assert staged(sinks[0].directory) == []


@pytest.mark.long
@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_two_drivers_at_once_add_an_epoch_to_sparks_list_once(
    spark: SparkSession, request: pytest.FixtureRequest, store: str
) -> None:
    place: str = request.getfixturevalue(f"in_{store}")
    listed = hadoop_directory(spark, place).below(LIST)
    listed.create()
    listed.put("0", b"v1")

    def begun() -> FilesSink:
        sink = sink_at(spark, place)
        sink.adopt(spark)
        return sink

    handle = begun().prepare(spark.createDataFrame(ROWS, SCHEMA).repartition(4), transaction(1))
    assert handle is not None
    sinks = [begun() for _ in range(3)]
    with ThreadPoolExecutor(3) as drivers:
        list(drivers.map(lambda sink: sink.commit(handle, lambda: None), sinks))
    assert read(spark, place) == ROWS
    assert sinks[0].spark_batch() == 1


def test_partitions_and_tables_are_directories_there_too(spark: SparkSession, in_hdfs: str) -> None:
    sink = sink_of(spark, partition_by=["k"], path=in_hdfs)
    sink.create()
    try:
        handle = sink.prepare(spark.createDataFrame([("a b", 1), (None, 2)], SCHEMA), transaction(1))
        assert handle is not None
        sink.commit(handle, lambda: None)
        assert sorted(map(str, spark.table(NAME).select("k", "n").collect())) == [
            "Row(k='a b', n=1)",
            "Row(k=None, n=2)",
        ]
        assert spark.table(NAME).where("k = 'a b'").count() == 1
    finally:
        spark.sql(f"DROP TABLE {NAME}")


def test_the_root_of_a_bucket_may_be_the_output(s3_spark: SparkSession, s3: S3Server) -> None:
    place = f"s3a://{s3.bucket()}"
    sink = sink_at(s3_spark, place)
    sink.check(s3_spark.createDataFrame([], SCHEMA).schema)
    handle = prepared(s3_spark, place)
    sink.commit(handle, lambda: None)
    assert sorted((row.k, row.n) for row in sj.read_files(place).collect()) == ROWS
    assert read(s3_spark, f"{place}/") == ROWS
    assert len([name for name in sink.directory.names() if name.startswith("part-")]) == 4
    sink.abort_orphans(QUERY, 1, [])
    assert staged(sink.directory) == []


LOST, ERRORS, DENIED = (Fault.LOST, Fault.LOST), (Fault.ERROR_AFTER, Fault.BUSY), (Fault.DENIED_AFTER,) * 2


@pytest.mark.parametrize(
    ("method", "faults"),
    mostly_crash(
        [*product(["PUT", "POST"], [LOST, ERRORS, DENIED])],
        quick=(),
        name=lambda each: "-".join([each[0], *(fault.name.lower() for fault in each[1])]),
        crash={("PUT", LOST), ("PUT", ERRORS), ("POST", LOST), ("POST", DENIED)},
    ),
)
def test_a_file_whose_copy_or_removal_is_not_answered_is_published_once(
    s3_spark: SparkSession, s3: S3Server, in_s3: str, method: str, faults: tuple[Fault, ...]
) -> None:
    handle = prepared(s3_spark, in_s3)
    with S3Proxy(s3.port, method) as proxy, through(s3_spark, proxy):
        sink = sink_at(s3_spark, in_s3)
        proxy.planned.extend(faults)
        sink.commit(handle, lambda: None)
        assert proxy.met == [*faults]
        assert staged(sink.directory) == []
    assert read(s3_spark, in_s3) == ROWS


def test_files_that_were_copied_but_not_removed_are_published_once(s3_spark: SparkSession, in_s3: str) -> None:
    handle, sink = prepared(s3_spark, in_s3), sink_at(s3_spark, in_s3)
    directory = sink.directory
    (name, published), *_ = handle["files"]
    # What a driver leaves that is killed between the two.
    directory.write(published, directory.read(f"_sparkjet/{QUERY}/results/staging/{handle['staging']}/{name}"))
    sink.commit(handle, lambda: None)
    assert read(s3_spark, in_s3) == ROWS
    assert staged(directory) == []


@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_what_a_late_task_attempt_writes_is_neither_published_nor_kept(
    spark: SparkSession, request: pytest.FixtureRequest, store: str
) -> None:
    place: str = request.getfixturevalue(f"in_{store}")
    handle, sink = prepared(spark, place), sink_at(spark, place)
    own = sink.directory.below(f"_sparkjet/{QUERY}/results/staging/{handle['staging']}")
    own.write("part-00000-late.parquet", b"half a file")
    sink.commit(handle, lambda: None)
    assert read(spark, place) == ROWS
    own.write("part-00000-later.parquet", b"half a file")
    assert read(spark, place) == ROWS
    sink.abort_orphans(QUERY, 1, [])
    assert staged(sink.directory) == []


@pytest.mark.parametrize("epochs", [3, *(pytest.param(each, marks=pytest.mark.long) for each in (24, 300))])
def test_the_requests_of_an_epoch_are_bounded(s3_spark: SparkSession, s3: S3Server, epochs: int) -> None:
    """The budget is stated in docs/design/020-directories.md; `engine/test_requests.py` has that of a query."""
    # Spark's tasks keep what was opened for a bucket, with or without the proxy.
    place = f"s3a://{s3.bucket()}/out"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        handle, sink = prepared(s3_spark, place), sink_at(s3_spark, place)
        assert asked(proxy) <= 2 + 4 * 5
        sink.commit(handle, lambda: None)
        # Another sink has prepared it: this one looks for the staged files first.
        assert asked(proxy) <= 5 + 4 * 4
        staging, later = sink.directory.below(f"_sparkjet/{QUERY}/results/staging"), []
        for epoch in range(2, epochs):
            staging.write(f"{epoch}/part-0", b"rows")
            asked(proxy)
            files = [["part-0", f"part-{epoch:09d}"]]
            sink.commit({**handle, "epoch": epoch, "staging": f"{epoch}", "files": files}, lambda: None)
            later.append(asked(proxy))
    # The manifest is merged every 16 epochs.
    assert sorted(later)[len(later) * 9 // 10] <= 5 + 1 * 3
    assert sum(later) / len(later) <= 5 + 1 * 3 + 6


def asked(proxy: S3Proxy) -> int:
    """How many requests have come since the last call."""
    found = len(proxy.requests)
    proxy.requests.clear()
    return found
