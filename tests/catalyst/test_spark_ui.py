"""Spark's UI leads to the page, also to one that was opened after another had been stopped."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from sparkjet.catalyst.spark_ui import link

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash

PROGRAM = """
import urllib.request
from pyspark.sql import SparkSession
from sparkjet.catalyst.spark_ui import link
from sparkjet.monitoring import open_page

settings = {"spark.ui.port": "0", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
port = spark.sparkContext.uiWebUrl.rpartition(":")[2]
for _ in range(2):
    page = open_page()
    link(spark, page.address)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/sparkjet/") as answer:
        assert answer.geturl() == page.address, answer.geturl()
    page.stop()
with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs/") as answer:
    assert answer.status == 200
spark.stop()
"""


def test_the_link_follows_the_page() -> None:
    """In its own process: the session of the tests has no UI."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_without_a_ui_nothing_is_done(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    link(spark, "http://127.0.0.1:1/")
    assert not caplog.records


def test_after_the_end_of_spark_no_context_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """The JVM would start another one, with the master of ``spark-submit``."""
    link(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None)), "http://127.0.0.1:1/")  # type: ignore[arg-type]
    assert not caplog.records
