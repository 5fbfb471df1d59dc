from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from sparkjet.engine.plain_logs import plain_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
PATIENCE = 60.0
"""Seconds after which a test fails that would hang otherwise."""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose settings nobody else reads."""
    session = spark.newSession()
    yield session
    session.conf.unset(MANAGER)


def test_a_session_gets_back_what_it_had(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    with plain_logs(session):
        assert "FileSystemBased" in str(session.conf.get(MANAGER))
        assert session.conf.get("fs.file.impl.disable.cache") == "true"
    assert dict(session.conf.getAll) == before


def test_what_its_user_has_set_stays(session: SparkSession) -> None:
    session.conf.set(MANAGER, "the.users.own")
    session.conf.set("fs.file.impl", "the.users.files")
    before = dict(session.conf.getAll)
    with plain_logs(session):
        assert session.conf.get("fs.file.impl") == "the.users.files"
        assert session.conf.get("fs.file.impl.disable.cache", None) is None
    assert dict(session.conf.getAll) == before


@pytest.mark.parametrize("own", [None, "the.users.own"])
def test_of_starts_that_cross_the_last_gives_back(session: SparkSession, own: str | None) -> None:
    if own is not None:
        session.conf.set(MANAGER, own)
    before = dict(session.conf.getAll)
    first, second = ExitStack(), ExitStack()
    first.enter_context(plain_logs(session))
    second.enter_context(plain_logs(session))
    first.close()
    assert "FileSystemBased" in str(session.conf.get(MANAGER))
    second.close()
    assert dict(session.conf.getAll) == before


def test_many_starts_at_once(session: SparkSession) -> None:
    before = dict(session.conf.getAll)
    together, seen = threading.Barrier(8), []

    def start() -> None:
        together.wait(PATIENCE)
        for _ in range(20):
            with plain_logs(session):
                seen.append(session.conf.get(MANAGER, None))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(seen) == 160
    assert all(each is not None and "FileSystemBased" in each for each in seen)
    assert dict(session.conf.getAll) == before


def test_sessions_do_not_share_it(session: SparkSession) -> None:
    other = session.newSession()
    with plain_logs(session):
        assert other.conf.get(MANAGER, None) is None
        with plain_logs(other):
            assert other.conf.get(MANAGER, None) is not None
        assert other.conf.get(MANAGER, None) is None
        assert session.conf.get(MANAGER, None) is not None
