"""Fixtures of external servers, for tests and pages; a server that cannot be had skips the test or, in CI, fails it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

REQUIRED = "SPARKJET_SERVERS_REQUIRED"
"""Set by .ci/run: a missing server is then an error."""


def serve(prepared: int, find: Callable[[], Path] | None = None) -> Iterator[PostgresServer]:
    """A running server; ``find`` looks for its programs."""
    # Not at the top: pytest loads this for every test, and most need no server.
    from tests.servers.postgres import NoServerError, PostgresServer, binaries

    try:
        programs = (find or binaries)()
    except NoServerError as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(str(error))
    with PostgresServer(prepared, programs=programs) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that can prepare transactions."""
    yield from serve(64)


@pytest.fixture(scope="session")
def postgres_unprepared() -> Iterator[PostgresServer]:
    """A server as it comes: without prepared transactions."""
    yield from serve(0)


@pytest.fixture
def postgres_dsn(dsn: str) -> str:
    """The same under the name that pages use."""
    return dsn


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    """A database of the test's own, on the server that can prepare."""
    return postgres.database(f"t{uuid.uuid4().hex}")
