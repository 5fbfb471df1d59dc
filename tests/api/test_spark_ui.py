"""Spark's page of a query shows it, with events that have a watermark among its history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.browser import Browser
from tests.monitoring.screenshots import WIDTH

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys, urllib.request
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import sparkjet as sj
from tests.interpreting import INTERPRETED
from tests.servers.programs import SMALL

settings = {"spark.ui.port": "0", "spark.driver.extraJavaOptions": " ".join(SMALL), **INTERPRETED}
settings["spark.sql.shuffle.partitions"] = "2"
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for batch, second in enumerate((1, 30, 59)):
    with open(f"{sys.argv[1]}/{batch}.json", "w") as file:
        file.write(json.dumps({"ts": f"2026-03-01 10:00:{second:02}"}))
    os.utime(file.name, (batch, batch))
source = spark.readStream.schema("ts timestamp").option("maxFilesPerTrigger", 1).json(sys.argv[1])
counts = sj.stream(source).withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds")).count()
query = counts.writeStream.format("memory").queryName("shown").start()
query.processAllAvailable()
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
address = spark.sparkContext.uiWebUrl
for page in ("StreamingQuery/", f"StreamingQuery/statistics/?id={query.runId}"):
    with urllib.request.urlopen(f"{address}/{page}") as answer:
        text = answer.read().decode()
    print(answer.status, query.id in text, query.runId in text, "shown" in text)
print(address, query.runId, flush=True)
sys.stdin.readline()
query.stop()
spark.stop()
"""


@pytest.mark.crash
@pytest.mark.long
def test_the_page_of_a_query_is_shown(tmp_path: Path) -> None:
    """In CI, `test_listener_events.py` reads the events that Spark draws."""
    feed, log = tmp_path / "feed", tmp_path / "log"
    feed.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(feed)]
    pipe = subprocess.PIPE
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, cwd=ROOT) as ran,
    ):
        try:
            assert ran.stdout is not None
            assert [ran.stdout.readline() for _ in range(2)] == ["200 True True True\n"] * 2, log.read_text()
            address, run = ran.stdout.readline().split()
            with Browser(tmp_path / "profile") as browser:
                browser.shows(f"{address}/StreamingQuery/statistics/?id={run}", WIDTH)
                # Spark's scripts have drawn what the page has of each batch.
                browser.waits_for("document.querySelectorAll('svg path.line').length > 0", "lines")
                assert "shown" in browser.value("document.body.textContent")
                assert browser.complaints == []
        finally:
            ran.kill()
