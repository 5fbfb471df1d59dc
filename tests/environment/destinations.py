"""The sinks of the table: how a result gets there, and what a reader finds that has nothing of the query's settings."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from psycopg.sql import SQL, Identifier
from pyspark.sql import functions as F

import sparkjet as sj
from tests.protocol.kafka.checks import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

Found = tuple[str, int, int, int]
"""A row of a result: key, microseconds and two numbers."""


@dataclass(frozen=True)
class Servers:
    """Where results go that leave the process."""

    postgres: PostgresServer
    kafka: KafkaServer


class Destination(Protocol):
    """A sink, and how it is read."""

    def writer(self, result: Any, mode: str) -> Any:
        """A writer of the result."""
        ...

    def ended(self, session: SparkSession) -> None:
        """A run in this session has ended, in order or not."""
        ...

    def rows(self) -> Sequence[Found]:
        """All rows of all runs."""
        ...


def plain(rows: DataFrame) -> list[Found]:
    """Rows as Python has them in every zone."""
    return [tuple(row) for row in rows.select("k", F.unix_micros("at"), "n", "total").collect()]


class Files:
    """Files, read by their manifest."""

    def __init__(self, place: Path, servers: Servers) -> None:
        self.place = place / "out"

    def writer(self, result: Any, mode: str) -> Any:
        """See :class:`Destination`."""
        return result.writeStream.format("parquet").option("path", self.place)

    def ended(self, session: SparkSession) -> None:
        """See :class:`Destination`."""

    def rows(self) -> Sequence[Found]:
        """See :class:`Destination`."""
        return plain(sj.read_files(str(self.place)))


class Table:
    """A table of PostgreSQL, read by psql."""

    def __init__(self, place: Path, servers: Servers) -> None:
        self.server = servers.postgres
        self.dsn = self.server.database(f"t{uuid.uuid4().hex}")

    def writer(self, result: Any, mode: str) -> Any:
        """See :class:`Destination`."""
        writer = result.writeStream.format("postgres").options(dsn=self.dsn, dbtable="public.found")
        return writer.options(mode="upsert", keyColumns="k") if mode == "update" else writer

    def ended(self, session: SparkSession) -> None:
        """See :class:`Destination`."""

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings of its database, for those who connect from now on."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            database = Identifier(connection.info.dbname)
            for name, value in settings.items():
                connection.execute(SQL("ALTER DATABASE {} SET {} = {}").format(database, Identifier(name), value))

    def reset(self) -> None:
        """Take all settings back."""
        options = "-c statement_timeout=0 -c default_transaction_read_only=off"
        with psycopg.connect(self.dsn, autocommit=True, options=options) as connection:
            connection.execute(SQL("ALTER DATABASE {} RESET ALL").format(Identifier(connection.info.dbname)))

    def fill_slots(self) -> None:
        """Leave the server no prepared transaction."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            for number in itertools.count():
                connection.execute("BEGIN")
                try:
                    connection.execute(f"PREPARE TRANSACTION 'slot {number}'".encode())
                except psycopg.errors.OutOfMemory:
                    return

    def free_slots(self) -> None:
        """Give them back."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            held = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'slot %'").fetchall()
            for (name,) in held:
                connection.execute(f"ROLLBACK PREPARED '{name}'".encode())

    def rows(self) -> Sequence[Found]:
        """See :class:`Destination`."""
        micros = "(extract(epoch FROM at) * 1000000)::bigint"
        query = f"SET client_encoding = 'UTF8'; SELECT k, {micros}, n, total FROM public.found"
        # After what the setting is answered with.
        found = self.server.psql(self.dsn, query)[1:]
        return [(k, int(at), int(n), int(total)) for k, at, n, total in found]


class Topic:
    """A topic of Kafka, read by a consumer that sees what is committed."""

    def __init__(self, place: Path, servers: Servers) -> None:
        self.server = servers.kafka
        self.name = self.server.topic()

    def writer(self, result: Any, mode: str) -> Any:
        """See :class:`Destination`."""
        value = F.concat_ws("\t", "k", F.unix_micros("at"), "n", "total")
        writer = result.select(F.col("k").alias("key"), value.alias("value")).writeStream.format("kafka")
        return writer.option("kafka.bootstrap.servers", self.server.bootstrap).option("topic", self.name)

    def ended(self, session: SparkSession) -> None:
        """See :class:`Destination`."""

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings of the topic."""
        self._alter(AlterConfigOpType.SET, settings)

    def reset(self, settings: Mapping[str, str]) -> None:
        """Take them back."""
        self._alter(AlterConfigOpType.DELETE, settings)

    def _alter(self, change: AlterConfigOpType, settings: Mapping[str, str]) -> None:
        if settings:
            entries = [ConfigEntry(name, value, incremental_operation=change) for name, value in settings.items()]
            topic = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
            # In a variable: a client that is collected takes its requests with it.
            admin = self.server.admin()
            admin.incremental_alter_configs([topic])[topic].result(60)

    def rows(self) -> Sequence[Found]:
        """See :class:`Destination`."""
        values = [message.value().decode().split("\t") for message in committed(self.server, self.name)]
        return [(k, int(at), int(n), int(total)) for k, at, n, total in values]


class Function:
    """A function of foreachBatch, which knows an epoch again."""

    def __init__(self, place: Path, servers: Servers) -> None:
        self._epochs: dict[int, list[Found]] = {}

    def writer(self, result: Any, mode: str) -> Any:
        """See :class:`Destination`."""

        def take(rows: DataFrame, epoch: int) -> None:
            found = plain(rows)
            assert sorted(self._epochs.setdefault(epoch, found)) == sorted(found), "an epoch has come with other rows"

        return result.writeStream.foreachBatch(take)

    def ended(self, session: SparkSession) -> None:
        """See :class:`Destination`."""

    def rows(self) -> Sequence[Found]:
        """See :class:`Destination`."""
        return [row for rows in self._epochs.values() for row in rows]


class View:
    """A view in memory, which each run begins from scratch."""

    def __init__(self, place: Path, servers: Servers) -> None:
        self._name = f"v{uuid.uuid4().hex}"
        self._rows: list[Found] = []

    def writer(self, result: Any, mode: str) -> Any:
        """See :class:`Destination`."""
        return result.writeStream.format("memory").queryName(self._name)

    def ended(self, session: SparkSession) -> None:
        """See :class:`Destination`."""
        if session.catalog.tableExists(self._name):
            self._rows += plain(session.table(self._name))
            session.catalog.dropTempView(self._name)

    def rows(self) -> Sequence[Found]:
        """See :class:`Destination`."""
        return self._rows


DESTINATIONS: Mapping[str, Callable[[Path, Servers], Destination]] = {
    "files": Files,
    "postgres": Table,
    "kafka": Topic,
    "foreachBatch": Function,
    "memory": View,
}
