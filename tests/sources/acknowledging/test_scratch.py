"""The directory of a process: it goes with it, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sparkjet.sources.acknowledging.scratch import Scratch

KILLED = """
import os, signal
from sparkjet.sources.acknowledging.scratch import Scratch
scratch = Scratch()
(scratch.path / "rows").write_bytes(bytes(100))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_process_has_left_is_removed_and_nothing_else(place: Path) -> None:
    (place / "sparkjet-queues-of-an-older-version").mkdir()
    living = Scratch()
    killed = subprocess.run([sys.executable, "-c", KILLED], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(place.glob("*/rows"))) == 1
    other = Scratch()
    assert list(place.glob("*/rows")) == []
    assert living.path.is_dir()
    for each in (living, other, living):
        each.remove()
    assert [each.name for each in place.iterdir()] == ["sparkjet-queues-of-an-older-version"]
