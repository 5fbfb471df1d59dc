"""Delta tables in HDFS and S3: the contract of all sinks, with versions put by our own directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.testing.sink_contract import SinkContract, SinkUnderTest
from tests.connectors.delta.test_delta import under_test
from tests.servers.s3 import BUCKET, PASSWORD, USER
from tests.sinks.test_upserts import in_a_store
from tests.storage.hadoop_target import hadoop_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.crash
"""The servers take long to start."""


class TestS3(SinkContract):
    """On a path the whole contract is kept in `test_delta.py`, and that of directories on S3 in `storage`."""

    OFTEN = (
        "test_nothing_is_seen_before_the_commit_and_everything_after",
        "test_a_commit_cut_short_is_finished_by_the_next",
    )

    @pytest.fixture
    def target(self, delta: SparkSession, s3_spark: SparkSession, s3: S3Server) -> SinkUnderTest:
        key = f"{uuid4().hex}/a table"
        return under_test(delta, hadoop_directory(s3_spark, f"s3a://{BUCKET}/{key}"), by_others(s3, key))


@pytest.mark.long
def test_upserts_into_s3(delta: SparkSession, s3_spark: SparkSession, s3: S3Server) -> None:
    key = f"{uuid4().hex}/a table%"
    directory = hadoop_directory(s3_spark, f"s3a://{BUCKET}/{key}")
    expected = in_a_store(lambda: DeltaSink(directory, delta, keys=("k",)), delta)
    assert sorted(by_others(s3, key)()) == expected


def by_others(s3: S3Server, key: str) -> Callable[[], list[tuple[str, int]]]:
    options = {
        "endpoint": s3.endpoint,
        "access_key_id": USER,
        "secret_access_key": PASSWORD,
        "region": "us-east-1",
        "allow_http": "true",
    }

    def read() -> list[tuple[str, int]]:
        table = DeltaTable(f"s3://{BUCKET}/{key}", storage_options=options)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT k, n FROM t").read_all())
        return [(row["k"], row["n"]) for row in found.to_pylist()]

    return read


@pytest.mark.long
class TestHdfs(SinkContract):
    @pytest.fixture
    def target(self, delta: SparkSession, hdfs: HdfsServer) -> SinkUnderTest:
        directory = hadoop_directory(delta, f"{hdfs.uri}/{uuid4().hex}/a table")

        def read() -> list[tuple[str, int]]:
            # delta-rs has no HDFS: what Kernel lists is read by Spark.
            files = [directory.uri(name) for name in files_named(directory)]
            return [tuple(row) for row in delta.read.parquet(*files).select("k", "n").collect()] if files else []

        return under_test(delta, directory, read)


def files_named(directory: Directory) -> list[str]:
    """The files that the versions in a log add."""
    log = directory.below("_delta_log")
    lines = [line for name in sorted(log.names()) if name.endswith(".json") for line in log.read(name).splitlines()]
    return [unquote(action["add"]["path"]) for action in map(json.loads, lines) if "add" in action]
