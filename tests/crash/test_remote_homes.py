"""A driver that is killed goes on with its remote home and files on another machine, as far as local files go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet_grid.access import create_token
from tests.crash.drivers import ROOT
from tests.feed import START, Feed, rows
from tests.grid.processes import MemberProcess
from tests.servers.s3 import BUCKET, client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.grid.processes import MemberProcess
    from tests.servers.hdfs import HdfsServer
from tests.servers.s3 import S3Server

TIMES = [0, 7, 14, 26, 60]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(tmp_path / "in")
    for time in TIMES:
        feed.add(*rows([time], k="a", v=1))
    return feed


def driver(place: Path, job: dict[str, Any], killed_at: tuple[str, int] | None) -> int:
    """Run a driver in its own temporary directory; returns how it ended."""
    temporary = place / uuid4().hex
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.crash.remote_driver", json.dumps({**job, "killed_at": killed_at})]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "TMPDIR": str(temporary),
    }
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=temporary, timeout=500
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr[-3000:]
    return done.returncode


def check(
    spark: SparkSession,
    place: Path,
    feed: Feed,
    home: str,
    settings: dict[str, str],
    kills: Sequence[tuple[str, int]],
    out: str | None = None,
) -> None:
    out = out or f"{home}/out"
    job = {"feed": str(feed.directory), "out": out, "home": f"{home}/home", "settings": settings}
    for phase, epoch in kills:
        assert driver(place, job, (phase, epoch)) == -signal.SIGKILL
    assert driver(place, job, None) == 0
    windows = Counter(start for time in TIMES for start in (time // 5 * 5, time // 5 * 5 - 5))
    for seen in (sj.read_files(out), spark.read.parquet(out)):
        found = seen.select(F.unix_seconds("window.start") - START, "n").collect()
        assert sorted(map(tuple, found)) == sorted(windows.items())


@pytest.mark.long
def test_from_hdfs(spark: SparkSession, hdfs: HdfsServer, feed: Feed, tmp_path: Path) -> None:
    # Decided, and nothing is published.
    check(spark, tmp_path, feed, f"{hdfs.uri}/{uuid4().hex}", {}, [("save", 2), ("decide", 4)])


# In CI, `cluster/test_standalone.py` kills a driver whose home is on HDFS and goes on elsewhere, and on S3
# `api/test_remote_homes.py` goes on elsewhere after a run that fails where this one is killed.
@pytest.mark.long
def test_from_s3(s3_spark: SparkSession, s3: S3Server, feed: Feed, tmp_path: Path) -> None:
    settings = {f"spark.hadoop.{name}": value for name, value in s3.settings().items()}
    # A file is published, and the manifest does not have it.
    jars = {"spark.jars": ",".join(map(str, client()))}
    check(s3_spark, tmp_path, feed, f"s3a://{BUCKET}/{uuid4().hex}", settings | jars, [("committing", 4)])


@pytest.mark.long
def test_from_a_grid(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    token = tmp_path / "token"
    create_token(token)
    settings = {"spark.sparkjet.grid.tokenFile": str(token)}
    with MemberProcess(tmp_path, token) as member:
        check(
            spark,
            tmp_path,
            feed,
            f"grid://{member.address}/x",
            settings,
            [("save", 2), ("decide", 4)],
            str(tmp_path / "out"),
        )
