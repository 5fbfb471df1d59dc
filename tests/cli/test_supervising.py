"""``run``: what is started again, and what is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkjet.cli import main
from sparkjet.cli.supervising import Backoff, supervise
from tests.faults.waiting import until

NOTING = """
import pathlib, signal, sys, threading
place = pathlib.Path(sys.argv[1])
runs = len(list(place.glob("run-*")))
(place / f"run-{runs}").touch()
if runs < int(sys.argv[2]):
    sys.exit(3)
if len(sys.argv) > 3:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (place / "waits").touch()
    threading.Event().wait()
"""


def program(place: Path, failures: int, *arguments: str) -> list[str]:
    """Fails the given number of times, and then ends well, or waits for SIGTERM."""
    return [sys.executable, "-c", NOTING, str(place), str(failures), *arguments]


def runs(place: Path) -> int:
    return len(list(place.glob("run-*")))


def test_a_program_that_fails_is_started_again_until_it_ends_well(tmp_path: Path) -> None:
    assert supervise(program(tmp_path, 3), Backoff(first=0.01)) == 0
    assert runs(tmp_path) == 4


def test_without_restart_its_status_is_handed_on(tmp_path: Path) -> None:
    assert supervise(program(tmp_path, 3), None) == 3
    assert runs(tmp_path) == 1
    assert supervise([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], None) == 137


def test_pauses_grow_and_start_over_after_a_long_run() -> None:
    backoff, pauses = Backoff(first=1, longest=5, healthy=100), [1.0]
    for ran in (1, 1, 1, 100, 1):
        pauses.append(backoff.after(pauses[-1], ran))
    assert pauses == [1, 2, 4, 5, 1, 2]


def test_a_signal_ends_the_program_and_the_supervision(tmp_path: Path) -> None:
    # Fails once, so that it is the second run that is ended.
    command = [sys.executable, "-m", "sparkjet", "run", "--restart", *program(tmp_path, 1, "wait")]
    with subprocess.Popen(command) as supervisor:
        until((tmp_path / "waits").exists, "the second run", 60)
        os.kill(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait(60) == 0
    assert runs(tmp_path) == 2


def test_a_program_that_cannot_be_started_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").touch()
    for restart in ([], ["--restart"]):
        assert main(["run", *restart, "spark-submitt", "job.py"]) == 1
        assert 'run: "spark-submitt" cannot be started: No such file or directory.' in capsys.readouterr().err
        assert main(["run", *restart, str(tmp_path / "data")]) == 1
        assert 'data" cannot be started: Permission denied.' in capsys.readouterr().err
