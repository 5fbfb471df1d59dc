"""One Spark session for the tests, the docstrings' examples and the pages."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.interpreting import INTERPRETED, interpreted
from tests.servers.programs import ARCHIVE, SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# Their asserts are to explain themselves like those of a test file.
SUITES = ("acknowledging", "directory", "policy", "sink", "source", "store", "throttle")
pytest.register_assert_rewrite(*(f"sparkjet.testing.{suite}_contract" for suite in SUITES))
pytest_plugins = ["scripts.doc_examples", "tests.servers.fixtures", "tests.servers.scheduling", "pytester"]

# A busy machine is no fault of a test's.
# Half as many examples as usual, as every run draws others.
settings.register_profile("sparkjet", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sparkjet")

MACHINES = {"artemis", "hdfs", "kafka", "kafka_old", "kafka_secure", "rabbitmq", "spark", "zookeeper"}
"""Fixtures that start a virtual machine, Java's or Erlang's: `make test-unit` does without."""

SERVERS = {
    *("artemis", "delta", "hdfs", "iceberg", "jdbc", "kafka", "kafka_old", "kafka_secure", "mariadb", "postgres"),
    *("rabbitmq", "s3"),
}
"""Fixtures of what is not ours, servers and libraries of tables: what uses one runs in `make test-crash`, so that `make
test` needs Python and Java alone."""

MATRICES = (
    *("cluster", "connectors/grid", "crash", "differential", "environment", "faults", "ported", "protocol", "soak"),
)
"""Folders of tests over many cases: killed drivers, executors and servers, random queries, strange environments, and
queries that were written for Spark; and of the connector whose servers are ours."""

COUNTED = ("bounded_state", "full_disk", "growth", "lost_state", "requests", "undecided")
CARRIERS = (
    *("cli", "connectors", "crash", "sinks", "snapshots", "sources", "storage"),
    *(f"engine/test_{name}.py" for name in COUNTED),
)
"""Tests whose queries only carry what they are about: homes, sinks, sources, damage, and what epochs leave behind. In
`make test-crash` no code is generated for these; in `make test-long` it is."""

# As pytest's `pythonpath`, for the processes that tests start.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Before any JVM: naive datetimes of rows are read in the process's zone, and a test must not depend on the machine's.
os.environ["TZ"] = "UTC"
time.tzset()
# Workers run this interpreter, not the first python3 of the PATH.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
# A name that does not resolve (containers, laptops offline) would stop the driver from binding.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
# Every driver, those of other processes too, maps Spark's classes instead of loading them.
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(ARCHIVE)
# The tests' client of Artemis would look for the machine's names when it is imported, and wait where there is no DNS.
os.environ["STOMP_SKIP_HOSTNAME_SCAN"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--interpreted``."""
    told = "no code is generated for Spark's queries: a quarter less CPU for thousands of small ones"
    parser.addoption("--interpreted", action="store_true", help=told)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session all tests share; a test that needs other settings starts a driver of its own."""
    # Not at the top: the tests without Spark would pay for the import.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder
    for name, value in INTERPRETED.items() if request.config.getoption("interpreted") else ():
        builder = builder.config(name, value)
    session = (
        builder.master("local[2]")
        .appName("sparkjet-tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        # Of a thousand queries with long plans Spark would keep what its page shows of the last thousand jobs.
        .config("spark.driver.memory", "3g")
        .config("spark.sql.ui.retainedExecutions", "100")
        .config("spark.ui.retainedJobs", "200")
        .config("spark.ui.retainedStages", "200")
        # Many small queries on two cores: the optimising compiler would take more time than it saves. An epoch leaves
        # 300 MB of garbage, for which the young generation has room.
        .config("spark.driver.extraJavaOptions", " ".join([*SMALL, "-Xmn600m"]))
        # Spark keeps 100 of the classes that it compiles, fewer than an epoch has: each would be compiled again in
        # every epoch, which takes a third of a query's time.
        .config("spark.sql.codegen.cache.maxEntries", "2000")
        # PySpark would walk the stack for every Column that is built, which takes two thirds of the time to build it.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    known = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    session.stop()
    # Every test after that one would have run without what Spark knows of cached blocks.
    if known != 1:
        pytest.fail("a test lost shuffle files, and Spark took its only executor for dead: give it a driver of its own")


@pytest.fixture(autouse=True)
def _shared_session_is_active(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes the shared session the active one again: the settings of a test's own would go on in later tests."""
    yield
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        type(session)._activeSession = session  # noqa: SLF001
        session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001


@pytest.fixture(autouse=True)
def _carriers_are_interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked so."""
    if request.node.get_closest_marker("interpreted") is None or "spark" not in request.fixturenames:
        yield
        return
    with interpreted(request.getfixturevalue("spark")):
        yield


class LoggedErrors(logging.Handler):
    """Collects what sparkjet logs of errors that it does not raise."""

    def __init__(self) -> None:
        """Collects nothing yet."""
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps an error, or a warning with a traceback."""
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def _nothing_is_swallowed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test during which sparkjet has logged an error, unless the test is about that."""
    logged, logger = LoggedErrors(), logging.getLogger("sparkjet")
    logger.addHandler(logged)
    yield
    logger.removeHandler(logged)
    if logged.found and request.node.get_closest_marker("logs_errors") is None:
        pytest.fail("sparkjet logged errors that it did not raise:\n" + "\n".join(logged.found), pytrace=False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs a session or a broker, what `make test-crash` runs instead of `make test`, and carriers."""
    below = {path: _below(path, config.rootpath / "tests") for path in {item.path for item in items}}
    for item in items:
        if not MACHINES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
        if not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        is_matrix, is_carrier = below[item.path]
        if is_matrix:
            item.add_marker("crash")
        # Of a contract that many classes keep, some have in CI only what is their own.
        owner = getattr(item, "cls", None)
        often = getattr(owner, "OFTEN", None)
        if often is not None and getattr(item, "originalname", None) not in often:
            item.add_marker("long")
        # What the contract calls otherwise by now would be long for good.
        if gone := [name for name in often or () if not hasattr(owner, name)]:
            message = f"{getattr(owner, '__name__', owner)}.OFTEN: there is no {', '.join(gone)}"
            raise pytest.UsageError(message)
        if is_carrier and item.get_closest_marker("long") is None:
            item.add_marker("interpreted")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves folders alone of which `make test` runs nothing: each of its processes would read thousands of tests."""
    if not config.getoption("markexpr").startswith("not crash"):
        return None
    return _below(collection_path, config.rootpath / "tests")[0] or None


def _below(path: Path, tests: Path) -> tuple[bool, bool]:
    """Whether a file is in a folder of matrices, and whether it is one of carriers."""
    matrix, carrier = (any(path.is_relative_to(tests / name) for name in names) for names in (MATRICES, CARRIERS))
    return matrix, carrier
