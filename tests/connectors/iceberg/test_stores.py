"""Iceberg tables in HDFS and S3: queries with a restart, into directories and into the warehouse of a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.connectors.iceberg.library import CatalogTable, PathTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.testing.sink_contract import SinkContract, SinkUnderTest
from tests.connectors.iceberg.others import by_pyiceberg
from tests.connectors.iceberg.reading import IcebergReader
from tests.connectors.iceberg.test_catalogs import catalog, settings_of
from tests.connectors.iceberg.test_iceberg import under_test
from tests.servers.s3 import BUCKET, PASSWORD, USER
from tests.sinks.test_upserts import in_a_store
from tests.storage.hadoop_target import hadoop_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.iceberg.library import IcebergTable
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.crash
"""The servers take long to start."""

DIRECTORY, WAREHOUSE = "a directory", "a warehouse"


@pytest.fixture
def namespace(request: pytest.FixtureRequest, iceberg: SparkSession, store: str) -> Iterator[str]:
    """Of a catalog whose tables are in the store."""
    settings = {**settings_of("jdbc", request, Path()), "warehouse": f"{store}/warehouse"}
    with catalog(iceberg, f"in_{uuid4().hex}", settings) as made:
        yield made


@pytest.fixture(params=[DIRECTORY, WAREHOUSE])
def table(request: pytest.FixtureRequest, iceberg: SparkSession, store: str) -> IcebergTable:
    """A table that is not there yet."""
    if request.param == DIRECTORY:
        return PathTable(iceberg, hadoop_directory(iceberg, f"{store}/a table"))
    return CatalogTable(iceberg, f"{request.getfixturevalue('namespace')}.t")


class TestS3(SinkContract):
    """On a path the whole contract is kept in `test_iceberg.py`, and that of directories on S3 in `storage`."""

    OFTEN = ("test_a_query_goes_on_from_a_copy_of_its_home",)

    @pytest.fixture
    def store(self, s3_spark: SparkSession) -> str:
        return f"s3a://{BUCKET}/{uuid4().hex}"

    @pytest.fixture
    def target(self, iceberg: SparkSession, s3: S3Server, table: IcebergTable) -> SinkUnderTest:
        target = under_test(iceberg, table, table)

        def read() -> list[tuple[str, int]]:
            version = table.version()
            assert version is not None
            access = {"s3__access_key_id": USER, "s3__secret_access_key": PASSWORD, "s3__region": "us-east-1"}
            return [(row["k"], row["n"]) for row in by_pyiceberg(version, s3__endpoint=s3.endpoint, **access)]

        return SinkUnderTest(target.sink, read, target.dangling)


@pytest.mark.long
class TestUpsertsIntoS3:
    @pytest.fixture
    def store(self, s3_spark: SparkSession) -> str:
        return f"s3a://{BUCKET}/{uuid4().hex}"

    def test_rows_replace_older_ones(self, iceberg: SparkSession, table: IcebergTable) -> None:
        expected = in_a_store(lambda: IcebergSink(table, iceberg, keys=("k",)), iceberg)
        # By Iceberg's own reader: pyiceberg applies no equality deletes.
        assert sorted((row["k"], row["n"]) for row in IcebergReader(iceberg, table).rows()) == expected


@pytest.mark.long
class TestHdfs(SinkContract):
    OFTEN = TestS3.OFTEN

    @pytest.fixture
    def store(self, hdfs: HdfsServer) -> str:
        return f"{hdfs.uri}/{uuid4().hex}"

    @pytest.fixture
    def target(self, iceberg: SparkSession, table: IcebergTable) -> SinkUnderTest:
        return under_test(iceberg, table, table)
