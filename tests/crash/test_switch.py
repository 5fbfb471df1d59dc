"""Drivers that are killed when a switch has been decided: SIGKILL at the end of each phase, of the old query's epoch
that closes its last windows and of the new query's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.api.test_switch import peaks, sums, told, windows
from tests.feed import START, Feed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

BORDER = datetime.fromtimestamp(START + 30, timezone.utc)


def started(spark: SparkSession, place: Path, name: str, listener: Any = None, **trigger: Any) -> Any:
    stream = sj.stream(Feed(place / "in").read(spark))
    results = (sums if name == "old" else peaks)(stream)
    writer = results.writeStream.format("files").option("path", place / f"{name}-out")
    writer = writer.option("checkpointLocation", place / name).onEpochPhase(listener)
    writer = writer.trigger(**trigger) if trigger else writer
    return (writer.option("publishAfter", place / "old") if name == "new" else writer).start()


def main(place: Path, who: str, at: str) -> None:
    """Run both queries in this process, which is killed at the end of a phase of one of them."""
    from pyspark.sql import SparkSession

    armed: list[str] = []

    def listener(phase: EpochPhase, _: int) -> None:
        if armed and phase.value == at:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    both = [started(spark, place, name, listener if name == who else None) for name in ("old", "new")]
    for each in both:
        each.processAllAvailable()
    sj.switch(place / "old", place / "new", BORDER)
    armed.append(who)
    (place / "second").rename(place / "in" / "00001.json")
    for each in both:
        each.processAllAvailable()


@pytest.mark.parametrize("who", ["old", "new"])
@pytest.mark.parametrize("phase", EpochPhase)
def test_each_window_is_there_once(spark: SparkSession, tmp_path: Path, who: str, phase: EpochPhase) -> None:
    feed = Feed(tmp_path / "in")
    feed.add(*rows([1, 12], k="a", v=1), *rows([4, 27], k="b", v=7))
    feed.add(*rows([33, 58], k="a", v=9), *rows([61], k="b", v=2))
    (tmp_path / "in" / "00001.json").rename(tmp_path / "second")
    driver = [sys.executable, "-m", __name__, str(tmp_path), who, phase.value]
    assert subprocess.run(driver, check=False).returncode == -signal.SIGKILL
    feed.add(*rows([900], k="late", v=0))
    for name in ("old", "new"):
        started(spark, tmp_path, name, availableNow=True).awaitTermination()
    batch = spark.read.schema("ts timestamp, k string, v long").json(str(tmp_path / "in")).where("k != 'late'")
    before, after = windows(batch, F.sum, "10 seconds"), windows(batch, F.max, "20 seconds", "10 seconds")
    for name, expected, is_its in (
        ("old", before, F.col("window.end") <= F.lit(BORDER)),
        ("new", after, F.col("window.end") > F.lit(BORDER)),
    ):
        assert told(sj.read_files(tmp_path / f"{name}-out").collect()) == told(expected.where(is_its).collect()) != []


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
