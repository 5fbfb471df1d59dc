"""Fixtures of external servers, for tests and pages; a server that cannot be had skips the test or, in CI, fails it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
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


def broker(
    *,
    transaction_version: int | None = None,
    secure: bool = False,
    settings: Mapping[str, str] | None = None,
    find: Callable[[], Path] | None = None,
) -> Iterator[KafkaServer]:
    """A running Kafka broker; ``find`` looks for its jars."""
    # Not at the top: pytest loads this for every test, and most need no broker.
    from tests.servers.kafka import KafkaServer, NoKafkaError, jars

    try:
        classes = (find or jars)()
    except NoKafkaError as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(str(error))
    with KafkaServer(
        transaction_version=transaction_version, secure=secure, settings=settings, classes=classes
    ) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A broker as it comes; tests share it and make topics of their own."""
    yield from broker()


@pytest.fixture
def kafka_servers(kafka: KafkaServer) -> str:
    """Its address under the name that pages use."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def kafka_old() -> Iterator[KafkaServer]:
    """A broker whose upgrade from 3.x was not finished: ``transaction.version`` is 0."""
    yield from broker(transaction_version=0)


@pytest.fixture(scope="session")
def kafka_secure() -> Iterator[KafkaServer]:
    """A broker whose clients come over TLS with SASL/SCRAM."""
    yield from broker(secure=True)
