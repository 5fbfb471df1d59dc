"""Directories of Hadoop's under test, whose puts can be disturbed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkjet.storage.hadoop_directory import HadoopDirectory
from sparkjet.storage.hadoop_file_system import HadoopFileSystem, open_file_system
from sparkjet.storage.hadoop_ways import WAYS, Way
from sparkjet.storage.patience import Patience
from sparkjet.testing.directory_contract import DirectoryUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.s3_proxy import S3Proxy


def hadoop_target(session: SparkSession, location: str) -> DirectoryUnderTest:
    def again() -> HadoopDirectory:
        return hadoop_directory(session, location)

    way = WAYS[location.partition(":")[0]]
    return DirectoryUnderTest(
        again(),
        again=again,
        losing=lambda: hadoop_directory(session, location, losing(way, 1)),
        held=lambda arrive: hadoop_directory(session, location, held(way, arrive)),
    )


def hadoop_directory(
    session: SparkSession, location: str, way: Way | None = None, patience: float = 60
) -> HadoopDirectory:
    system = open_file_system(session, location, "checkpointLocation")
    return HadoopDirectory(system, system.qualified(location), way=way, patience=Patience(patience, has_answered=True))


def losing(way: Way, answers: int, *, before: bool = False) -> Way:
    """A way whose first answers are lost, with their requests or not; then all are heard."""
    left: Iterator[int] = iter(range(answers))

    def put(system: HadoopFileSystem, path: Any, content: bytes) -> None:
        is_lost = next(left, None) is not None
        if not (is_lost and before):
            way.put(system, path, content)
        if is_lost:
            raise OSError(5, "the answer is lost")

    return way._replace(put=put)


def held(way: Way, arrive: threading.Event) -> Way:
    """A way whose requests arrive only when the event is set."""

    def put(system: HadoopFileSystem, path: Any, content: bytes) -> None:
        assert arrive.wait(60)
        way.put(system, path, content)

    return way._replace(put=put)


def counting(way: Way, seen: Callable[[bytes], None]) -> Way:
    """A way that tells what is put."""

    def put(system: HadoopFileSystem, path: Any, content: bytes) -> None:
        seen(content)
        way.put(system, path, content)

    return way._replace(put=put)


@contextmanager
def through(session: SparkSession, proxy: S3Proxy) -> Iterator[None]:
    """Directories that are opened meanwhile reach S3 through a proxy."""
    session.conf.set("fs.s3a.endpoint", proxy.endpoint)
    try:
        yield
    finally:
        session.conf.unset("fs.s3a.endpoint")
