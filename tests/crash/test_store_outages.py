"""The store of a home goes away at each phase of an epoch: it is carried or ends the query, and nothing changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet import EpochPhase
from tests.cluster.runs import fill
from tests.crash.outages import Held
from tests.faults.waiting import let_pass
from tests.feed import Feed
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.storage.hadoop_target import through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

# What is not carried is logged as well.
pytestmark = [pytest.mark.logs_errors, pytest.mark.timeout(1800)]
BATCHES = 3
SHORT, LONG = 5.0, 20.0
"""Seconds."""
logger = logging.getLogger("tests.outages")


def check(
    spark: SparkSession,
    feed: Feed,
    place: str,
    outage: AbstractContextManager[None],
    seconds: float,
    phases: Iterable[EpochPhase] = EpochPhase,
) -> None:
    """A query for each phase waits there; the store goes away while they go on."""
    rows = fill(feed, BATCHES)
    held = {phase: Held(spark, feed, f"{place}/{phase.value}", phase) for phase in phases}
    for query in held.values():
        query.start()
    for query in held.values():
        query.wait_at_phase()
    with outage:
        for query in held.values():
            query.release()
        let_pass(seconds)
    began = time.monotonic()
    ended = {phase: query.end() for phase, query in held.items()}
    for phase, error in ended.items():
        logger.warning("%s: %s", phase.value, "carried" if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            held[phase].start()
    for phase, query in held.items():
        again = query.end() if ended[phase] is not None else None
        assert again is None, (phase, again)
        query.check(rows)
    logger.warning("all queries were at their ends %.0f s after the store was back", time.monotonic() - began)


@contextmanager
def safe_mode(spark: SparkSession, hdfs: HdfsServer) -> Iterator[None]:
    """The NameNode refuses whatever changes something."""
    jvm = spark._jvm
    assert jvm is not None
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    system = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI(hdfs.uri), hadoop)
    action = jvm.org.apache.hadoop.fs.SafeModeAction
    system.setSafeMode(action.ENTER)
    try:
        yield
    finally:
        system.setSafeMode(action.LEAVE)
        system.close()


@pytest.mark.long
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_the_name_node_is_killed(spark: SparkSession, hdfs: HdfsServer, tmp_path: Path, seconds: float) -> None:
    check(spark, Feed(tmp_path / "in"), f"{hdfs.uri}/{uuid4().hex}", hdfs.away(), seconds)


@pytest.mark.long
def test_the_name_node_refuses_changes(spark: SparkSession, hdfs: HdfsServer, tmp_path: Path) -> None:
    check(spark, Feed(tmp_path / "in"), f"{hdfs.uri}/{uuid4().hex}", safe_mode(spark, hdfs), LONG)


def test_the_s3_server_is_killed_after_the_decision(s3_spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    check(s3_spark, Feed(tmp_path / "in"), f"s3a://{s3.bucket()}", s3.away(), SHORT, [EpochPhase.DECIDE])


@pytest.mark.long
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_the_s3_server_is_killed(s3_spark: SparkSession, s3: S3Server, tmp_path: Path, seconds: float) -> None:
    check(s3_spark, Feed(tmp_path / "in"), f"s3a://{s3.bucket()}", s3.away(), seconds)


@pytest.mark.long
@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.ERROR_AFTER, Fault.LOST])
def test_s3_answers_with_errors(s3_spark: SparkSession, s3: S3Server, tmp_path: Path, fault: Fault) -> None:
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        check(s3_spark, Feed(tmp_path / "in"), f"s3a://{s3.bucket()}", proxy.always(fault), LONG)
