"""Drivers that are killed around the seam of a backfill: SIGKILL at the end of each phase."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.api.test_backfill import ALL, Case, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def main(home: Path, at: str, epoch: int) -> None:
    """Run the query in this process, which is killed at the end of a phase."""
    from pyspark.sql import SparkSession

    def listener(phase: EpochPhase, number: int) -> None:
        if (phase.value, number) == (at, epoch):
            os.kill(os.getpid(), signal.SIGKILL)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    run(Case(builder.getOrCreate(), home, write=False).counts().onEpochPhase(listener))


def test_history_and_stream_are_as_one_batch_whatever_driver_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(spark, tmp_path)
    for phase, epoch in ALL:
        driver = [sys.executable, "-m", __name__, str(tmp_path), phase.value, str(epoch)]
        assert subprocess.run(driver, check=False).returncode == -signal.SIGKILL
    run(case.counts())
    assert case.record.history.is_read
    assert case.found == case.expected(case.old.union(case.new).distinct())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
