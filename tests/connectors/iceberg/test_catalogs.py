"""Iceberg tables by their name, in catalogs of several kinds, each of which has its own way to have one winner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from sparkjet.connectors.iceberg.library import CatalogTable
from sparkjet.connectors.iceberg.sink import IcebergSink
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.java import java_class
from sparkjet.testing.sink_contract import RUN, SinkContract, SinkUnderTest, transaction
from tests.connectors.iceberg.test_iceberg import numbers, prepared, race, under_test
from tests.servers.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.iceberg.version import Version
    from tests.servers.hive import HiveMetastore
    from tests.servers.iceberg_rest import RestCatalogServer

REST = "rest"
# A database's own compare-and-swap; Iceberg's look and rename; that of a metastore.
OTHERS = [
    pytest.param("jdbc", marks=pytest.mark.long),
    pytest.param("hadoop", marks=pytest.mark.long),
    pytest.param("hive", marks=pytest.mark.long),
]


def settings_of(kind: str, request: pytest.FixtureRequest, warehouse: Path) -> Mapping[str, str]:
    """How a catalog of a kind is reached."""
    if kind == REST:
        rest: RestCatalogServer = request.getfixturevalue("iceberg_rest")
        return rest.settings()
    if kind == "hive":
        hive: HiveMetastore = request.getfixturevalue("hive_metastore")
        return hive.settings()
    given = {"type": kind, "warehouse": str(warehouse)}
    if kind == "jdbc":
        jdbc: SparkSession = request.getfixturevalue("jdbc")
        loader = jdbc._jsparkSession.sharedState().jarClassLoader()
        java_class(jdbc, "java.lang.Thread").currentThread().setContextClassLoader(loader)
        java_class(jdbc, "java.lang.Class").forName("org.h2.Driver", True, loader)
        given["uri"] = "jdbc:h2:mem:lake;DB_CLOSE_DELAY=-1;DATABASE_TO_UPPER=FALSE"
    return given


@contextlib.contextmanager
def catalog(spark: SparkSession, name: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A namespace of a catalog that Spark is configured with."""
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    table = CatalogTable(spark, f"{name}.db_{uuid4().hex}.t")
    table.enter()
    namespace = table._identifier.namespace()
    table._catalog.createNamespace(namespace)
    yield f"{name}.{namespace.toString()}"
    for key in settings:
        spark.conf.unset(f"spark.sql.catalog.{name}.{key}")


@pytest.fixture(scope="module", params=[REST, *OTHERS])
def lake(
    request: pytest.FixtureRequest, iceberg: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A namespace of a catalog of each kind."""
    name = f"lake_{request.param}"
    with catalog(iceberg, name, settings_of(request.param, request, tmp_path_factory.mktemp(name))) as namespace:
        yield namespace


class TestByName(SinkContract):
    """On a path the whole contract is kept in `test_iceberg.py`."""

    OFTEN = ("test_a_commit_cut_short_is_finished_by_the_next",)

    @pytest.fixture
    def target(self, iceberg: SparkSession, lake: str) -> SinkUnderTest:
        name = f"{lake}.`t{uuid4().hex}`"
        return under_test(iceberg, CatalogTable(iceberg, name), name)


def test_a_table_of_a_catalog_that_spark_is_configured_with(iceberg: SparkSession, lake: str) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    # Hive takes no blanks.
    name = f"{lake}.by_name" if "hive" in lake else f"{lake}.`by name`"
    target = under_test(iceberg, CatalogTable(iceberg, name), name)
    handles = [target.sink.prepare(rows, transaction(epoch, run=RUN)) for epoch in (1, 2)]
    for handle in [*handles, handles[0]]:
        assert handle is not None
        # Which the next driver only has the record of.
        another = IcebergSink(CatalogTable(iceberg, name), iceberg, option="toTable")
        another.check(rows.schema)
        another.create()
        another.commit(handle, lambda: None)
    assert target.read() == [("a", 1), ("a", 1)]
    assert target.dangling() == 0
    assert "epoch 2" in str(target.sink.published_after(transaction(1), None))


# In CI, drivers race in a directory in `test_iceberg.py`; what a catalog answers late is below.
@pytest.mark.long
def test_of_many_drivers_at_once_one_commits(iceberg: SparkSession, lake: str) -> None:
    race(iceberg, lambda: CatalogTable(iceberg, f"{lake}.raced"), f"{lake}.raced")


class Cut(CatalogTable):
    """Whose answer to the first commit is lost, and whose catalog has made it."""

    def __init__(self, session: SparkSession, name: str, cut: Callable[[], None]) -> None:
        super().__init__(session, name)
        self._cut: list[Callable[[], None]] = [cut]

    def _commit(self, version: Version, metadata: Any) -> bool:
        if self._cut:
            self._cut.pop()()
        return super()._commit(version, metadata)


def test_an_answer_of_rest_that_is_lost_repeats_nothing(iceberg: SparkSession, iceberg_rest: RestCatalogServer) -> None:
    rows = iceberg.sql("SELECT 'a' AS k, 1L AS n")
    with TcpProxy(iceberg_rest.port) as proxy, catalog(iceberg, "cut", iceberg_rest.settings(proxy.port)) as lake:

        def cut() -> None:
            proxy.unanswered = True

        sink = IcebergSink(Cut(iceberg, f"{lake}.t", cut), iceberg)
        sink.check(rows.schema)
        sink.create()
        handle = prepared(sink, rows, 1)
        # Iceberg's client may repeat the request by itself; what has been made is then found.
        with suppress(SinkError):
            sink.commit(handle, lambda: None)
        assert (proxy.unanswered, proxy.left) == (False, None)
        # It was made all the same; the engine tries it again.
        assert numbers(iceberg, f"{lake}.t") == [1]
        sink.commit(handle, lambda: None)
        assert numbers(iceberg, f"{lake}.t") == [1]


def test_settings_of_a_catalog_for_hadoop_are_its_own(iceberg: SparkSession, tmp_path: Path) -> None:
    given = {"type": "hadoop", "warehouse": str(tmp_path), "hadoop.iceberg.engine.hive.lock-enabled": "false"}
    with catalog(iceberg, "own", given) as lake:
        found = CatalogTable(iceberg, f"{lake}.t")._catalog
        assert found.getConf().get("iceberg.engine.hive.lock-enabled") == "false"
        # Another table of the same catalog has no connections and threads of its own.
        assert CatalogTable(iceberg, f"{lake}.u")._catalog.equals(found)
        iceberg.conf.set("spark.sql.catalog.own.hadoop.fs.s3a.endpoint", "http://127.0.0.1:1")
        try:
            with pytest.raises(AnalysisError, match=r"Set spark\.hadoop\.fs\.s3a\.endpoint before the session is "):
                CatalogTable(iceberg, f"{lake}.t").version()
        finally:
            iceberg.conf.unset("spark.sql.catalog.own.hadoop.fs.s3a.endpoint")


def test_a_catalog_that_is_not_there_is_named(iceberg: SparkSession) -> None:
    with pytest.raises(
        AnalysisError, match=r'there is no catalog "nowhere" of Iceberg\'s: spark\.sql\.catalog\.nowher'
    ):
        CatalogTable(iceberg, "nowhere.db.t").version()
