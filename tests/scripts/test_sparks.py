from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts.sparks import LINES, ROOT, pyspark, runs
from sparkjet.spark_line import NEWEST_NAME


def sparks(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "scripts" / "sparks.py"), *arguments]
    return subprocess.run(script, capture_output=True, text=True, check=False)


def test_a_line_that_does_not_exist_is_named() -> None:
    done = sparks("3.5")
    assert done.returncode == 2
    assert done.stderr.endswith("no such line: 3.5; there are 4.0, 4.1, 4.2, 4.3\n")


def test_the_newest_line_is_the_newest_that_was_tried() -> None:
    assert list(LINES)[-1] == NEWEST_NAME
    assert all(release.startswith(f"{line}.") for line, release in LINES.items())


def test_the_spark_of_this_environment_is_not_installed_again() -> None:
    assert pyspark(version("pyspark")) == []


@pytest.mark.parametrize("line", LINES)
def test_what_runs_exists(line: str) -> None:
    named = [
        Path(each) for command in runs(line, quick=False) for each in command if each.startswith(("tests", "docs"))
    ]
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
    assert len(runs(line, quick=True)) == 1
