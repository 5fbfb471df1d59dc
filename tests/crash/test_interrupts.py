"""Ctrl-C ends a script in one line: its query stops after the epoch, or at once when it comes again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog
from tests.crash.drivers import PATIENCE, ROOT
from tests.feed import Feed, rows

LINE = "sparkjet: interrupted; query clicks stops when its epoch has ended (Ctrl-C again ends it at once).\n"


@contextmanager
def script(root: Path, where: str) -> Iterator[subprocess.Popen[str]]:
    """The script, once it says that it is where it should be; its output goes on, errors and the JVM's with it."""
    Feed(root / "in").add(*rows([1, 2, 13], v=1))
    os.mkfifo(root / "go")
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "src"), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.interrupted", str(root), where],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert any(line == "ready\n" for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.wait()


def rest(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=PATIENCE)[0]


def epoch(root: Path) -> int:
    newest = RecordLog(DirectoryStore(root / "home" / "snapshots")).newest()
    assert newest is not None
    return newest[1].epoch


@pytest.mark.crash
def test_the_epoch_that_runs_is_committed_first(tmp_path: Path) -> None:
    with script(tmp_path, "epoch") as process:
        # As a terminal does: to all of them.
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == LINE
        (tmp_path / "go").write_text("")
        assert (rest(process), process.wait()) == ("", -signal.SIGINT)
    assert (tmp_path / "counts").read_text() == "1 [2]\n"
    assert epoch(tmp_path) == 1


@pytest.mark.long
def test_a_query_that_waits_for_rows_stops(tmp_path: Path) -> None:
    with script(tmp_path, "idle") as process:
        os.killpg(process.pid, signal.SIGINT)
        assert (rest(process), process.wait()) == (LINE, -signal.SIGINT)


@pytest.mark.long
def test_a_second_time_ends_it_at_once(tmp_path: Path) -> None:
    with script(tmp_path, "epoch") as process:
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == LINE
        os.killpg(process.pid, signal.SIGINT)
        assert (rest(process), process.wait()) == ("", 128 + signal.SIGINT)
    assert not (tmp_path / "counts").exists()
