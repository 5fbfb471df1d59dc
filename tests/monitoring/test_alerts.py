"""Alerts of a real Prometheus beside a real query, which is made to lag, to lose a member of its grid, and to stop."""

from __future__ import annotations

import re
import signal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj
from tests.faults.waiting import until
from tests.feed import Feed, rows
from tests.grid.processes import GridProcesses
from tests.monitoring.prometheus import Prometheus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.crash
def test_a_query_that_lags_loses_a_member_and_stops_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    rules = resources.files("sparkjet.monitoring").joinpath("static/alerts.yml").read_text(encoding="utf-8")
    # What it waits for is tried with promtool.
    rules = re.sub(r"for: \d+m", "for: 1s", rules)
    feed = Feed(tmp_path / "in")
    (tmp_path / "grid").mkdir()
    with GridProcesses(tmp_path / "grid") as grid:
        spark.conf.set("spark.sparkjet.grid.tokenFile", str(grid.token))
        query = page = None
        try:
            feed.add(*rows((20,), k="a"), *rows((10,), k="b"))
            stream = sj.stream(feed.read(spark)).withWatermark("ts", "5 seconds", by="k", substreams=["a", "b"])
            windows = stream.groupBy(sj.window("ts", "10 seconds"), "k").count()
            writer = windows.writeStream.format("noop").queryName("flights").option("queryId", "flights")
            addresses = ",".join(member.address for member in grid.members)
            query = writer.option("snapshotStore", f"grid://{addresses}").start()
            query.processAllAvailable()
            page = query.page(port=0)
            with Prometheus(tmp_path, page, rules) as prometheus:
                # Its rows are years old.
                until(lambda: ("SparkjetSubstreamHoldsBack", "b") in prometheus.firing("substream"), "a lag", 120)
                until(lambda: prometheus.value("sparkjet_grid_members") == 3, "all members", 120)
                grid.members[-1].signal(signal.SIGKILL)
                until(lambda: ("SparkjetGridMemberLost", "") in prometheus.firing("substream"), "its loss", 120)
                query.stop()
                until(lambda: ("SparkjetQueryEnded", "") in prometheus.firing("substream"), "its end", 120)
        finally:
            if page is not None:
                page.stop()
            if query is not None:
                query.stop()
            spark.conf.unset("spark.sparkjet.grid.tokenFile")
