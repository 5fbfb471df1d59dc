"""A Kafka broker and a PostgreSQL server for the clicks job, on the loopback address; they end with it.

They are those of the tests (`tests/servers`): a process and a temporary directory each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.kafka import KafkaServer, jars
from tests.servers.postgres import NoServerError, PostgresServer, binaries
from tests.servers.programs import NoProgramError


class NoServersError(Exception):
    """One of the two cannot be started on this machine; the message names what to install."""


@dataclass(frozen=True)
class Servers:
    """The addresses of both.

    Attributes:
        brokers: What Kafka's clients call `bootstrap.servers`.
        database: What PostgreSQL's clients call a connection string.
        psql: Rows of a query as PostgreSQL's own client prints them, which shares nothing with the sink.
    """

    brokers: str
    database: str
    psql: Callable[[str], list[list[str]]]


@contextmanager
def servers(postgres: Callable[[], Path] = binaries, kafka: Callable[[], Path] = jars) -> Iterator[Servers]:
    """Both, running; at the end each is stopped by its process id and its directory removed, even after an error.

    Args:
        postgres: Finds PostgreSQL's programs.
        kafka: Finds the broker's jars, or lets Maven download them.

    Raises:
        NoServersError: One of them is not installed.
    """
    try:
        programs, classes = postgres(), kafka()
    except (NoServerError, NoProgramError) as error:
        raise NoServersError(str(error)) from error
    with PostgresServer(programs=programs) as database, KafkaServer(classes=classes) as broker:
        dsn = database.dsn()
        yield Servers(broker.bootstrap, dsn, lambda query: database.psql(dsn, query))
