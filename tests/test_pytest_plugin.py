"""The fixtures for users' tests: nothing while unused; beside a session that runs already. `test_wheels.py` has one of
their own, and the tests of the page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.pytest_plugin import ZONE, _environment, _set, sparkjet_driver, sparkjet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.testing import StreamDriver

__all__ = ["sparkjet_driver", "sparkjet_session"]
UNUSED = """
import sys

def test_nothing_is_imported(request):
    found = [each for each in sys.modules if each.startswith(("pyspark", "py4j", "sparkjet."))]
    assert found == ["sparkjet.pytest_plugin"]
    assert request.config.pluginmanager.hasplugin("sparkjet.pytest_plugin")
"""


@pytest.fixture(scope="session")
def sparkjet_settings() -> Mapping[str, str]:
    return {"spark.sql.shuffle.partitions": "3"}


def test_it_imports_nothing_while_it_is_unused(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sparkjet.pytest_plugin", str(tmp_path)]
    # Where sparkjet is installed with it, its entry point would name the same module again.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout


def test_beside_a_session_that_runs_it_is_another_one_of_that_application(
    spark: SparkSession, sparkjet_session: SparkSession
) -> None:
    assert sparkjet_session is not spark
    assert sparkjet_session.sparkContext is spark.sparkContext
    name = "spark.sql.shuffle.partitions"
    assert (spark.conf.get(name), sparkjet_session.conf.get(name)) == ("2", "3")
    assert sparkjet_session.conf.get(ZONE) == spark.conf.get(ZONE)
    # Otherwise Spark knows no such source.
    with pytest.raises(Exception, match=r"sparkjet-kafka|subscribe|needs Spark 4\.2"):
        sparkjet_session.readStream.format("sparkjet-kafka").load()


def test_a_setting_that_cannot_be_changed_is_refused_unless_it_is_so_already(spark: SparkSession) -> None:
    session = spark.newSession()
    static: Mapping[str, Any] = {"spark.ui.enabled": False, "spark.master": spark.sparkContext.master}
    _set(session, {**static, "spark.sql.shuffle.partitions": "5"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "5"
    with pytest.raises(sj.AnalysisError, match=r'Spark runs already, and its spark.ui.enabled cannot be made "true"'):
        _set(session, {"spark.ui.enabled": "true"})


def test_a_driver_runs_a_query_in_that_session(
    spark: SparkSession, sparkjet_driver: Callable[..., StreamDriver], sparkjet_session: SparkSession
) -> None:
    driver = sparkjet_driver(
        lambda rows: rows.withWatermark("ts", 0).groupBy(sj.window("ts", "10 seconds")).count(),
        "ts timestamp",
        statePartitions=1,
    )
    driver.process([("2026-01-01 12:00:01",), ("2026-01-01 12:00:10",)])
    assert [row["count"] for row in driver.results()] == [1]
    # As the fixture does after the test.
    driver.close()
    driver.close()
    assert [row["count"] for row in driver.results()] == [1]
    with pytest.raises(sj.AnalysisError, match=r"Call restart\(\) first"):
        driver.process()


def test_the_process_has_the_zone_of_the_session_and_gets_its_own_back(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc).timestamp()
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "mine")
    time.tzset()
    try:
        with _environment("UTC"):
            assert time.localtime(moment).tm_hour == 12
            assert os.environ["PYSPARK_PYTHON"] == sys.executable
            assert os.environ["PYSPARK_DRIVER_PYTHON"] == "mine"
        assert datetime.fromtimestamp(moment).astimezone().utcoffset() == timedelta(hours=5.5)
        assert "PYSPARK_PYTHON" not in os.environ
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("zone", "east"),
    [("+02:00", 2), ("-03:30", -3.5), ("UTC+2", 2), ("GMT-0130", -1.5), ("+18", 18), ("Z", 0), ("Asia/Kolkata", 5.5)],
)
def test_a_zone_of_sparks_is_the_same_one_in_the_process(
    zone: str, east: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with _environment(zone):
        assert time.localtime(0).tm_gmtoff == east * 3600
    assert time.localtime(0).tm_gmtoff == 9 * 3600
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ["Mars/Olympus", "PST", "../UTC", ""])
def test_a_zone_that_the_machine_does_not_know_is_refused(zone: str) -> None:
    before = os.environ.get("TZ")
    with pytest.raises(sj.AnalysisError, match="is not a zone that this machine knows"), _environment(zone):
        pytest.fail("it was entered")
    assert os.environ.get("TZ") == before
