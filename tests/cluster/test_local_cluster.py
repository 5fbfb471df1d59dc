"""Executors in processes of their own: the same windows, and no row lost with an executor or the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.feed import Feed, rows

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.crash


def run(task: str, home: Path, fault: str = "none") -> int:
    """Run the driver of this folder in a process of its own; its exit status."""
    command = [sys.executable, "-m", "tests.cluster.driver", task, str(home), fault]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (home / "driver.log").open("ab") as log:
        status = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False).returncode
    if status not in {0, -signal.SIGKILL}:
        print((home / "driver.log").read_text()[-8000:])  # noqa: T201 - the only way to see why it failed
    return status


def fill(home: Path) -> None:
    """Six batches of two substreams, one of them behind, with rows that are late and rows without a time."""
    feed = Feed(home / "in")
    for batch in range(6):
        time = batch * 25
        feed.add(
            *rows([time, time + 3, time + 11], p="a", k="x", v=batch),
            *rows([time - 8, time - 6], p="b", k="y", v=2 * batch),
            *rows([time - 70], p="b", k="late", v=1),
            *rows([None], p="a", k="x", v=1),
        )


def output(home: Path) -> dict[str, list[str]]:
    """Rows of the result and of the late rows, as text."""
    return {
        folder: sorted(repr(row) for row in pq.ParquetDataset(home / folder).read().to_pylist())
        for folder in ("out", "late")
    }


def test_the_window_laws_hold_on_a_cluster(tmp_path: Path) -> None:
    assert run("windows", tmp_path) == 0


def test_losing_an_executor_or_the_driver_changes_nothing(tmp_path: Path) -> None:
    results = {}
    for fault in ("none", "executor", "driver"):
        home = tmp_path / fault
        home.mkdir()
        fill(home)
        status = run("query", home, fault)
        if fault == "driver":
            assert status == -signal.SIGKILL
            status = run("query", home)
        assert status == 0
        results[fault] = output(home)
    assert len(results["none"]["out"]) > 10
    assert len(results["none"]["late"]) >= 6
    assert results["executor"] == results["none"]
    assert results["driver"] == results["none"]
    assert "restoring it" in (tmp_path / "executor" / "driver.log").read_text()
