"""The HDFS that tests start: it survives the death of its NameNode."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.storage.hadoop_target import hadoop_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.hdfs import HdfsServer


@pytest.mark.long
def test_what_was_put_outlives_a_killed_name_node(spark: SparkSession, hdfs: HdfsServer) -> None:
    place = f"{hdfs.uri}/{uuid4().hex}"
    directory = hadoop_directory(spark, place)
    directory.create()
    assert directory.put("slot", b"record")
    killed = hdfs.name_node.pid
    hdfs.restart_names()
    assert hdfs.name_node.pid != killed
    assert hadoop_directory(spark, place).read("slot") == b"record"
    assert not directory.put("slot", b"other")
