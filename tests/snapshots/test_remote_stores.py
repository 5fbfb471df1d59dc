"""The directory store keeps the contract of stores on HDFS and S3."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.snapshots import DirectoryStore
from sparkjet.testing.store_contract import StoreContract, StoreUnderTest
from tests.servers.s3 import BUCKET
from tests.storage.hadoop_target import hadoop_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.crash


def under_test(session: SparkSession, location: str) -> StoreUnderTest:
    def again() -> DirectoryStore:
        return DirectoryStore(hadoop_directory(session, location))

    def foreign(name: str) -> None:
        for below in ("log", "state", "blobs"):
            hadoop_directory(session, f"{location}/{below}").write(name, b"not ours")

    store = again()
    store.open("checkpointLocation")
    return StoreUnderTest(store, again, foreign)


class TestHdfs(StoreContract):
    @pytest.fixture
    def target(self, spark: SparkSession, hdfs: HdfsServer) -> StoreUnderTest:
        return under_test(spark, f"{hdfs.uri}/{uuid4().hex}")


class TestS3(StoreContract):
    @pytest.fixture
    def target(self, s3_spark: SparkSession, s3: S3Server) -> StoreUnderTest:
        return under_test(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}")
