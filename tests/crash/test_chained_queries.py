"""Two queries over a journal, whose drivers are killed: each row once, and no watermark lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connectors.grid.chained import at
from tests.crash.drivers import ROOT, SLOW
from tests.grid.grids import grid_of

pytestmark = pytest.mark.crash

KILLED_AT = [("first COMMITTING", 2)]
"""Of the first, after the record and before the journal shows it; the second dies with it, at any moment. Each with how
often it is said before."""
MORE = [
    *[("second DECIDE", 1), ("first DECIDE", 1), ("second COMMIT", 1), ("first PREPARE", 1), ("second PREPARE", 1)],
    ("second CLEAN", 1),
]


def run(arguments: list[str], log: Path, until: str, times: int) -> str:
    """A driver until it has said something some times, and is killed, or until its end; returns its last line."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.crash.chained_driver", *arguments]
    line = ""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for said in process.stdout:
                line = said.strip()
                times -= line.startswith(until)
                if times == 0:
                    break
        finally:
            # Python, its JVM and their workers.
            os.killpg(process.pid, signal.SIGKILL)
    return line


def patiently(arguments: list[str], log: Path, until: str, times: int) -> str:
    """Like :func:`run`, and once more where a busy machine has started a worker of Python too slowly."""
    for _ in range(5):
        before = log.stat().st_size if log.exists() else 0
        line = run(arguments, log, until, times)
        if line.startswith(until) or SLOW not in log.read_text()[before:]:
            break
    return line


# In CI, `connectors/grid/test_chained_queries.py` starts the second query again for each epoch of the first,
# `test_journal_sink.py` beside it ends a driver at each step, and `test_in_a_grid.py` kills those with homes in a grid.
@pytest.mark.long
@pytest.mark.parametrize(("moments", "files"), [(KILLED_AT, 3), (MORE, 5)], ids=["some", "more"])
def test_killed_drivers_lose_and_repeat_nothing(tmp_path: Path, moments: list[tuple[str, int]], files: int) -> None:
    chance = random.Random(5)
    (tmp_path / "feed").mkdir()
    for number in range(files):
        rows = [
            {"ts": at(60 * number + chance.uniform(0, 60)), "k": chance.choice("ab"), "v": chance.randint(1, 9)}
            for _ in range(40)
        ]
        file = tmp_path / "feed" / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, sorted(rows, key=lambda row: str(row["ts"])))))
        os.utime(file, (1_700_000_000 + number,) * 2)
    log = tmp_path / "drivers.log"
    (tmp_path / "grid").mkdir()
    with grid_of(tmp_path / "grid", 2) as grid:
        members = ",".join(grid.addresses)
        arguments = [str(tmp_path), f"grid://{members}/results", str(grid.access.token_file)]
        for moment, times in moments:
            assert patiently(arguments, log, moment, times).startswith(moment), log.read_text()[-3000:]
        last = patiently(arguments, log, "{", 1)
    assert last.startswith("{"), log.read_text()[-3000:]
    found = json.loads(last)
    assert found["found"] == found["expected"] != []
