"""The S3 server that tests start: it survives being killed, and without Go another one takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.servers.programs import NoProgramError
from tests.servers.s3 import BUCKET, S3Server, client, versitygw
from tests.storage.hadoop_target import hadoop_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.crash
def test_what_was_put_outlives_a_killed_server(s3_spark: SparkSession, s3: S3Server) -> None:
    directory = hadoop_directory(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}")
    assert directory.put("slot", b"record")
    killed = s3.pid
    s3.restart()
    assert s3.pid != killed
    assert directory.read("slot") == b"record"
    assert not directory.put("slot", b"other")


@pytest.mark.crash
def test_the_server_that_needs_no_go_has_one_winner_too(s3_spark: SparkSession) -> None:
    with S3Server(gateway=None) as server:
        hadoop = s3_spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("fs.s3a.endpoint", server.endpoint)
        directory = hadoop_directory(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}")
        directory.check("checkpointLocation")
        assert directory.put("slot", b"record")
        assert not directory.put("slot", b"other")


def test_without_maven_and_go_there_is_nothing_to_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versitygw(tmp_path) is None
    with pytest.raises(NoProgramError, match="apt-get install maven"):
        client(tmp_path)
