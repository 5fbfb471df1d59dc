"""A standalone cluster of two workers, and a query on it with its home in a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.cluster.runs import Run
from tests.servers.s3 import BUCKET, client
from tests.servers.spark import ALL_CORES, SparkCluster

if TYPE_CHECKING:
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of which each worker, and each driver, sees its own empty one."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="session")
def cluster(private: Path) -> Iterator[SparkCluster]:
    """Shared by the files of this folder."""
    with SparkCluster(private) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: SparkCluster, hdfs: HdfsServer, private: Path, tmp_path: Path) -> Iterator[Run]:
    yield Run(cluster, tmp_path, private, f"{hdfs.uri}/{uuid4().hex}", {"spark.cores.max": str(ALL_CORES)})
    # Whatever the test has killed.
    cluster.wait_for_workers()


@pytest.fixture
def on_s3(cluster: SparkCluster, s3: S3Server, private: Path, tmp_path: Path) -> Run:
    """The same query with home and output on S3, whose client the executors get from the driver."""
    settings = {f"spark.hadoop.{name}": value for name, value in s3.settings().items()}
    jars = {"spark.jars": ",".join(map(str, client()))}
    return Run(cluster, tmp_path, private, f"s3a://{BUCKET}/{uuid4().hex}", settings | jars)
