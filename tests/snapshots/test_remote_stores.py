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


OFTEN = ("test_a_slot_is_written_once", "test_a_delta_comes_back_as_it_was_written")
"""A store is kept in a directory, whose contract is kept on both in `storage/test_hadoop_directory.py`."""


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
    OFTEN = OFTEN

    @pytest.fixture
    def target(self, spark: SparkSession, hdfs: HdfsServer) -> StoreUnderTest:
        return under_test(spark, f"{hdfs.uri}/{uuid4().hex}")


class TestS3(StoreContract):
    OFTEN = OFTEN

    @pytest.fixture
    def target(self, s3_spark: SparkSession, s3: S3Server) -> StoreUnderTest:
        return under_test(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}")


def test_a_directory_that_has_become_empty_is_removed_like_a_delta(s3_spark: SparkSession, s3: S3Server) -> None:
    directory = hadoop_directory(s3_spark, f"s3a://{s3.bucket()}/home")
    state, store = directory.below("state"), DirectoryStore(directory)
    # Clients put a marker where they have removed the last file.
    state._system.java.mkdirs(state._at("1-failed"))
    assert store.names() == ["1-failed"]
    store.remove("1-failed")
    assert store.names() == []
