"""A pytest plugin: fixtures for tests of queries, which pytest finds wherever sparkjet is installed.

It is separate from :mod:`sparkjet.testing`, whose import needs PySpark: pytest imports a plugin at every start, and an
unused one must cost nothing. All fixtures begin with ``sparkjet_``, as many projects and other plugins have their own
``spark`` and ``spark_session``. ``-p no:sparkjet`` leaves it out.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.testing import StreamDriver

ZONE = "spark.sql.session.timeZone"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
QUICK: Mapping[str, str] = {
    "spark.master": "local[2]",
    "spark.app.name": "sparkjet tests",
    # The name of a laptop may not resolve.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Short-lived: the optimizing compiler would take more time than it saves, and code fills up after some queries.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    # An epoch has more classes than the 100 compiled ones that Spark keeps.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # PySpark would walk the stack for every Column that is built.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    ZONE: "UTC",
}
"""Settings of a session for small queries on two cores."""


@pytest.fixture(scope="session")
def sparkjet_settings() -> Mapping[str, str]:
    """Spark settings for ``sparkjet_session``, on top of the quick ones; override it to set some.

    If a session is already running, they are set in a new session of its application, so they must be settings that a
    running application can change, or already has.
    """
    return {}


@pytest.fixture(scope="session")
def sparkjet_session(
    sparkjet_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A Spark session for all tests, with sparkjet's sources; override it to use your own.

    It is started when the first test uses it, and stopped after the last one. If Spark is already running in the
    process, started by another plugin or fixture, this is a session of that application with its own settings, and is
    left to whoever has started it. Times are in UTC, including rows that a test collects: in the meantime, the process
    has the time zone of ``spark.sql.session.timeZone``.
    """
    # Not at the top: most runs of pytest are for other projects.
    from pyspark import SparkContext  # noqa: PLC0415 - see above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    from sparkjet.api.sources import register_sources  # noqa: PLC0415 - see above

    with ExitStack() as stack:
        if SparkContext._active_spark_context is not None:  # noqa: SLF001 - getOrCreate() would change its settings
            session = SparkSession.builder.getOrCreate().newSession()
            _set(session, sparkjet_settings)
        else:
            warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
            settings = {**QUICK, **warehouse, **sparkjet_settings}
            stack.enter_context(_environment(settings[ZONE]))
            session = SparkSession.builder.config(map=dict(settings)).getOrCreate()
            stack.callback(session.stop)
            session.sparkContext.setLogLevel("ERROR")
        register_sources(session)
        yield session


@pytest.fixture
def sparkjet_driver(sparkjet_session: SparkSession) -> Iterator[Callable[..., StreamDriver]]:
    """Creates a :class:`sparkjet.testing.StreamDriver` from a query, a schema and options; closed after the test.

    ``sparkjet_driver(query, schema, **options)``, as often as a test needs.
    """
    from sparkjet.testing import StreamDriver  # noqa: PLC0415 - on use

    with ExitStack() as stack:

        def make(*arguments: object, **options: object) -> StreamDriver:
            driver = StreamDriver(sparkjet_session, *arguments, **options)  # type: ignore[arg-type]
            stack.callback(driver.close)
            return driver

        yield make


def _set(session: SparkSession, settings: Mapping[str, Any]) -> None:
    """Set what a running application may change; settings that it already has need not be changeable."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - on use

    from sparkjet.errors import AnalysisError  # noqa: PLC0415 - on use

    for name, value in settings.items():
        given = str(value).lower() if isinstance(value, bool) else str(value)
        if session.conf.get(name, None) == given:
            continue
        try:
            session.conf.set(name, given)
        except AnalysisException as error:
            message = (
                f'sparkjet_settings: Spark runs already, and its {name} cannot be made "{given}". Set it where that '
                "session is started, by another fixture or plugin."
            )
            raise AnalysisError(message) from error


@contextmanager
def _environment(zone: str) -> Iterator[None]:
    """The environment that Spark takes from the process, for as long as the session is there."""
    before = dict(os.environ)
    # Collected rows have the process's time zone: a test must not depend on a machine's.
    os.environ["TZ"] = _of_process(zone)
    time.tzset()
    # Otherwise workers run the first python3 of the PATH, which may be a different one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        yield
    finally:
        for name in ("TZ", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        time.tzset()


def _of_process(zone: str) -> str:
    """A Spark time zone as ``TZ`` has it, where +02:00 would be two hours *behind* UTC and unknown zones are UTC.

    >>> _of_process("Europe/Berlin"), _of_process("+02:00"), _of_process("UTC-3")
    ('Europe/Berlin', '<+02>-2:00:00', '<-03>+3:00:00')
    """
    if zone in {"UTC", "GMT", "UT", "Z"}:
        return "UTC"
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups("00")
        name = f"{sign}{hours:>02}{minutes if minutes != '00' else ''}"
        return f"<{name}>{'-' if sign == '+' else '+'}{int(hours)}:{minutes}:{seconds}"
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:
        from sparkjet.errors import AnalysisError  # noqa: PLC0415 - on use

        message = (
            f'sparkjet_settings: {ZONE}="{zone}" is not a zone that this machine knows, so rows would be collected in '
            "UTC. Name a region such as Europe/Berlin or an offset such as +02:00; regions need the package tzdata of "
            "the operating system."
        )
        raise AnalysisError(message) from error
    return zone
