"""State that outgrows the memory of its executors: it spills, then a task dies, and with more memory all comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long
PATIENCE = 900


def _run(
    home: Path, memory: str, batch: int, keys: int, *options: str, digests: int = 0
) -> tuple[list[dict[str, Any]], str]:
    """The program's report, and all other output of it and its JVM."""
    command = [sys.executable, "-m", "tests.engine.large_state", str(home), *map(str, (batch, keys, digests)), *options]
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--driver-memory {memory} pyspark-shell"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return told, ended.stderr


def test_state_spills_to_the_disks_of_executors_and_the_query_goes_on(tmp_path: Path) -> None:
    told, errors = _run(tmp_path, "800m", 200_000, 1_200_000)
    assert told, errors
    assert told[-1] == {"keys": 1_200_000, "rows": 1_200_000}
    assert told[0]["spilledBytes"] == 0
    assert told[0]["memoryBytes"] > 0
    assert max(each["spilledBytes"] for each in told[:-1]) > 0


def test_a_query_that_died_of_too_little_memory_goes_on_with_more(tmp_path: Path) -> None:
    # With pages that two operators cannot both have: with smaller ones it depends on other load whether a task dies.
    told, errors = _run(tmp_path, "700m --conf spark.buffer.pageSize=512m", 100_000, 300_000)
    assert all("keys" not in each for each in told)
    assert "OutOfMemoryError" in errors
    told, errors = _run(tmp_path, "2g", 100_000, 300_000)
    assert told, errors
    assert told[-1] == {"keys": 300_000, "rows": 300_000}


@pytest.mark.parametrize(
    "limits", [("maxStateEntries=500000", "maxStateEntries=900000"), ("maxStateBytes=100m", "maxStateBytes=1g")]
)
def test_a_query_ends_at_its_limit_before_its_memory_is_full(tmp_path: Path, limits: tuple[str, str]) -> None:
    told, errors = _run(tmp_path, "1g", 200_000, 800_000, limits[0])
    assert told, errors
    assert "[SPARKJET_STATE_LIMIT]" in told[-1]["error"]
    assert limits[0].partition("=")[0] in told[-1]["error"]
    told, errors = _run(tmp_path, "1g", 200_000, 800_000, limits[1])
    assert told, errors
    assert told[-1] == {"keys": 800_000, "rows": 800_000}
