"""Windows that are closed early by what executors measure: a driver killed at each step sheds others, and counts once.

An epoch that was not decided may close other windows when it runs again, as executors then hold other segments; whoever
reads the output sees those of one of the two.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
KILLS = (
    (2, EpochPhase.ADVANCE, "maxStateBytes=4000"),
    (2, EpochPhase.SAVE, "maxStateBytes=9000"),
    (2, EpochPhase.PREPARE, "maxStateBytes=3000"),
    (2, EpochPhase.DECIDE, "maxStateBytes=6000"),
    (3, EpochPhase.COMMITTING, "maxStateBytes=2000"),
    (4, EpochPhase.COMMIT, "maxStateBytes=4000"),
    (5, EpochPhase.CLEAN, "maxStateBytes=4000"),
)
"""Where each run dies, which has another limit than the last: an epoch that runs again sheds others for certain."""
FILES, NAMES = 5, 20


def _run(root: Path, epoch: int, phase: str, *options: str) -> int:
    command = [sys.executable, "-m", "tests.crash.shedding", str(root), str(epoch), phase, *options]
    with (root / "log").open("a") as log:
        return subprocess.run(
            command, stdout=log, stderr=log, start_new_session=True, timeout=600, check=False
        ).returncode


def _fed(root: Path) -> int:
    """Files of rows, each of which is partly older than what was closed early before; returns the number of rows."""
    (root / "feed").mkdir()
    for number in range(FILES):
        rows = [
            {"ts": f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z", "name": f"n{name}"}
            for second in range(max(0, 20 * number - 15), 20 * number + 40, 5)
            for name in range(NAMES)
        ]
        file = root / "feed" / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return sum(len(file.read_text().splitlines()) for file in (root / "feed").iterdir())


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([KILLS[1], KILLS[3], KILLS[4]], id="before, at and after the decision"),
        pytest.param(KILLS, id="each phase", marks=pytest.mark.long),
    ],
)
def test_no_crash_changes_which_rows_count(
    spark: SparkSession, tmp_path: Path, kills: Sequence[tuple[int, EpochPhase, str]]
) -> None:
    rows = _fed(tmp_path)
    for epoch, phase, limit in kills:
        assert _run(tmp_path, epoch, phase.value, limit) == -signal.SIGKILL, (tmp_path / "log").read_text()
    assert _run(tmp_path, 0, "", "maxStateBytes=4000", "statePartitions=1") == 0, (tmp_path / "log").read_text()

    results = spark.read.json(str(tmp_path / "out")).collect()
    late = spark.read.parquet(str(tmp_path / "late")).collect()
    windows = Counter((str(row["window"]), row["name"]) for row in results)
    assert set(windows.values()) == {1}
    assert {row["is_shed"] for row in results} == {True, False}
    assert {row["_reason"] for row in late} == {"shed"}
    assert sum(row["rows"] for row in results) + len(late) == rows
