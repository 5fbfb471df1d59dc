"""A plugin of pytest's: fixtures for tests of queries, which pytest finds where sparkjet is installed.

It lies beside :mod:`sparkjet.testing`, whose import needs PySpark: pytest imports a plugin at every start, and one that
nobody uses must cost nothing. All fixtures begin with ``sparkjet_``, as ``spark`` and ``spark_session`` are names of
many a project's own and of other plugins. ``-p no:sparkjet`` leaves it out.
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
    # Of a short life: the optimising compiler would take more time than it saves, and code is full after some queries.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    # An epoch has more classes than the 100 that Spark keeps of those that it compiles.
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
    """Settings of Spark's for ``sparkjet_session``, on top of quick ones; override it to have some.

    Where a session runs already, they are set in a new one of its application, so they must be some that a running
    application can change, or has so.
    """
    return {}


@pytest.fixture(scope="session")
def sparkjet_session(
    sparkjet_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A Spark session for all tests, with sparkjet's sources; override it to use one of your own.

    It is started when the first test takes it, and stopped after the last one. If Spark runs in the process already,
    started by another plugin or fixture, this is a session of that application with settings of its own, and is left
    to whoever has started it. Times are in UTC, in rows that a test collects too: the zone of the process is that of
    ``spark.sql.session.timeZone`` meanwhile.
    """
    # Not at the top: most runs of pytest are of other projects.
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
    """Makes a :class:`sparkjet.testing.StreamDriver` of a query, a schema and its options; closed after the test.

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
    """Set what a running application may change; what it has already need not be changed."""
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
    """What Spark takes from the process, for as long as the session is there."""
    before = dict(os.environ)
    # Rows that are collected have the process's zone: a test must not depend on that of a machine.
    os.environ["TZ"] = _of_process(zone)
    time.tzset()
    # Otherwise workers run the first python3 of the PATH, which may be another one.
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
    """A zone of Spark's as ``TZ`` has it, where +02:00 would be two hours *behind* UTC, and what is not known is UTC.

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
