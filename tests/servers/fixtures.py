"""Fixtures of external servers, for tests and pages; a server that cannot be had skips the test or, in CI, fails it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from sparkjet_grid.access import create_token
from tests.grid.processes import MemberProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.artemis import ArtemisServer
    from tests.servers.hdfs import HdfsServer
    from tests.servers.hive import HiveMetastore
    from tests.servers.iceberg_rest import RestCatalogServer
    from tests.servers.jdbc import MariaServer
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.rabbitmq import RabbitServer
    from tests.servers.s3 import S3Server

T = TypeVar("T")

REQUIRED = "SPARKJET_SERVERS_REQUIRED"
"""Set by .ci/run: a missing server is then an error."""


def available(make: Callable[[], T], missing: type[Exception]) -> T:
    """The result of ``make``; a test that needs what this machine lacks is skipped, or fails in CI."""
    try:
        return make()
    except missing as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(str(error))


def serve(prepared: int, find: Callable[[], Path] | None = None) -> Iterator[PostgresServer]:
    """A running server; ``find`` looks for its programs."""
    # Not at the top: pytest loads this for every test, and most need no server.
    from tests.servers.postgres import NoServerError, PostgresServer, binaries

    programs = available(find or binaries, NoServerError)
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
    from tests.servers.kafka import KafkaServer, jars
    from tests.servers.programs import NoProgramError

    classes = available(find or jars, NoProgramError)
    with KafkaServer(
        transaction_version=transaction_version, secure=secure, settings=settings, classes=classes
    ) as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A broker as it comes; tests share it and make their own topics."""
    yield from broker()


@pytest.fixture
def kafka_servers(kafka: KafkaServer) -> str:
    """Its address under the name that pages use."""
    return kafka.bootstrap


@pytest.fixture
def schema_registry() -> Iterator[str]:
    """The address of a schema registry, for pages."""
    from tests.servers.schema_registry import SchemaRegistry

    with SchemaRegistry() as registry:
        yield registry.url


@pytest.fixture(scope="session")
def kafka_old() -> Iterator[KafkaServer]:
    """A broker whose upgrade from 3.x was not finished: ``transaction.version`` is 0."""
    yield from broker(transaction_version=0)


@pytest.fixture(scope="session")
def kafka_secure() -> Iterator[KafkaServer]:
    """A broker whose clients come over TLS with SASL/SCRAM."""
    yield from broker(secure=True)


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsServer]:
    """An HDFS with one NameNode and one DataNode; tests share it and use their own directories."""
    # Not at the top: pytest loads this for every test, and most need no server.
    from tests.servers.hdfs import HdfsServer
    from tests.servers.programs import NoProgramError

    with available(HdfsServer, NoProgramError) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitServer]:
    """A RabbitMQ node; tests share it and make their own queues."""
    # Not at the top: pytest loads this for every test, and most need no broker.
    from tests.servers.programs import NoProgramError
    from tests.servers.rabbitmq import RabbitServer

    with available(RabbitServer, NoProgramError) as server:
        yield server


@pytest.fixture
def rabbitmq_port(rabbitmq: RabbitServer) -> int:
    """Its port under the name that pages use."""
    return rabbitmq.port


@pytest.fixture(scope="session")
def artemis() -> Iterator[ArtemisServer]:
    """An ActiveMQ Artemis broker, with and without TLS; tests share it and make their own queues."""
    # Not at the top: pytest loads this for every test, and most need no broker.
    from tests.servers.artemis import ArtemisServer
    from tests.servers.programs import NoProgramError

    with available(lambda: ArtemisServer(secure=True), NoProgramError) as server:
        yield server


@pytest.fixture
def artemis_port(artemis: ArtemisServer) -> int:
    """Its port under the name that pages use."""
    return artemis.port


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server with one bucket; tests share it and use their own prefixes."""
    from tests.servers.programs import NoProgramError
    from tests.servers.s3 import S3Server

    with available(S3Server, NoProgramError) as server:
        yield server


@pytest.fixture(scope="session")
def s3_classes(spark: SparkSession) -> Any:
    """A class loader with Hadoop's client of S3, as the shared session's JVM was started without it."""
    from tests.servers.programs import NoProgramError
    from tests.servers.s3 import client

    jars = available(client, NoProgramError)
    context: Any = spark.sparkContext
    gateway = context._gateway
    # The driver's and the executor's are other classes of the same names, and metrics would refuse the second ones.
    gateway.jvm.org.apache.hadoop.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
    urls = gateway.new_array(gateway.jvm.java.net.URL, len(jars))
    for number, jar in enumerate(jars):
        urls[number] = gateway.jvm.java.net.URL(f"file:{jar}")
        context._jsc.addJar(str(jar))
    return gateway.jvm.java.net.URLClassLoader(urls, context._jsc.hadoopConfiguration().getClassLoader())


def _with_jars(spark: SparkSession, jars: Sequence[str]) -> SparkSession:
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.fixture(scope="session")
def delta_kernel() -> list[str]:
    """The jars of Delta Kernel."""
    from tests.servers.delta import kernel
    from tests.servers.programs import NoProgramError

    return list(map(str, available(kernel, NoProgramError)))


@pytest.fixture(scope="session")
def delta(spark: SparkSession, delta_kernel: list[str]) -> SparkSession:
    """The shared session, to which Delta Kernel was added while it ran."""
    return _with_jars(spark, delta_kernel)


@pytest.fixture(scope="session")
def iceberg_jars() -> list[str]:
    """Iceberg's jar."""
    from tests.servers.iceberg import library
    from tests.servers.programs import NoProgramError

    return list(map(str, available(library, NoProgramError)))


@pytest.fixture(scope="session")
def iceberg(spark: SparkSession, iceberg_jars: list[str]) -> SparkSession:
    """The shared session, to which Iceberg was added while it ran."""
    return _with_jars(spark, iceberg_jars)


@pytest.fixture(scope="session")
def iceberg_rest() -> Iterator[RestCatalogServer]:
    """A REST catalog of Iceberg's; tests share it and use their own namespaces."""
    from tests.servers.iceberg_rest import RestCatalogServer
    from tests.servers.programs import NoProgramError

    with available(RestCatalogServer, NoProgramError) as server:
        yield server


@pytest.fixture(scope="session")
def hive_metastore() -> Iterator[HiveMetastore]:
    """A metastore of Hive's; tests share it and use their own databases."""
    from tests.servers.hive import HiveMetastore

    with HiveMetastore() as server:
        yield server


@pytest.fixture(scope="session")
def jdbc_drivers() -> list[str]:
    """The jars of drivers of databases."""
    from tests.servers.jdbc import drivers
    from tests.servers.programs import NoProgramError

    return list(map(str, available(drivers, NoProgramError)))


@pytest.fixture(scope="session")
def jdbc(spark: SparkSession, jdbc_drivers: list[str]) -> SparkSession:
    """The shared session, to which the drivers of databases were added while it ran."""
    return _with_jars(spark, jdbc_drivers)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A MariaDB; tests share it and make their own databases."""
    from tests.servers.jdbc import MariaServer
    from tests.servers.programs import NoProgramError

    with available(MariaServer, NoProgramError) as server:
        yield server


@pytest.fixture
def s3_spark(spark: SparkSession, s3: S3Server, s3_classes: Any) -> Iterator[SparkSession]:
    """The shared session, with Hadoop's client of S3 for as long as the test runs."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.getClassLoader()
    hadoop.setClassLoader(s3_classes)
    for name, value in s3.settings().items():
        hadoop.set(name, value)
    yield spark
    for name in s3.settings():
        hadoop.unset(name)
    hadoop.setClassLoader(before)


@pytest.fixture(scope="session")
def grid_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemberProcess]:
    """A grid of one member, in its own process."""
    place = tmp_path_factory.mktemp("grid")
    create_token(place / "token")
    with MemberProcess(place, place / "token") as member:
        yield member


@pytest.fixture
def grid_address(grid_member: MemberProcess) -> str:
    """Its address, under the name that pages use."""
    return grid_member.address


@pytest.fixture
def grid_token(grid_member: MemberProcess) -> str:
    """The file with its token, under the name that pages use."""
    return str(grid_member.token)
