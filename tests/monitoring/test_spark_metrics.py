"""Spark's own metrics system shows a query's gauges, in a driver that has a sink for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.crash
ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, urllib.request
from pyspark.sql import SparkSession, functions as F
import sparkjet as sj
from tests.interpreting import INTERPRETED
from tests.servers.programs import SMALL

home = sys.argv[1]
sink = "spark.metrics.conf.*.sink.prometheusServlet"
settings = {
    "spark.ui.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.metrics.namespace": "app",
    f"{sink}.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    f"{sink}.path": "/metrics/prometheus",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": " ".join(SMALL),
    **INTERPRETED,
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
port = spark.sparkContext.uiWebUrl.rpartition(":")[2]

def gauges():
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/prometheus/") as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.split("{")[0:1] + [line.split()[-1]] for line in lines if "sparkjet" in line and "Value" in line)

def run(name):
    stream = sj.stream(spark.readStream.schema("ts timestamp").json(f"{home}/in")).withWatermark("ts", "1 second")
    counted = stream.groupBy(F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
    writer = counted.writeStream.format("noop").option("checkpointLocation", f"{home}/{name}").queryName(name)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()

run("off")
assert gauges() == {}, gauges()
spark.conf.set("spark.sql.streaming.metricsEnabled", "TRUE")
run("on")
# The same name again: it goes on with its gauges.
run("on")
found = gauges()
assert len(found) == 8, found
(entries,) = (value for key, value in found.items() if "sparkjet_on_stateEntries" in key)
assert int(entries) > 0, found
spark.stop()
"""


def test_gauges_follow_sparks_own_setting(tmp_path: Path) -> None:
    """In a process of its own: the session of the tests has no UI, and what is registered stays."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"ts": "2026-01-05 10:00:00"}\n{"ts": "2026-01-05 10:00:59"}\n')
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-3000:]
