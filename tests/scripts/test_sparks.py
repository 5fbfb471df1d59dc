from __future__ import annotations

import os
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


def test_what_is_required_begins_with_the_oldest_line() -> None:
    assert f'    "pyspark>={min(LINES)},<5",\n' in (ROOT / "pyproject.toml").read_text()


def test_the_spark_of_this_environment_is_not_installed_again() -> None:
    assert pyspark(version("pyspark")) == []


@pytest.mark.parametrize("line", LINES)
def test_paths_that_it_runs_exist(line: str) -> None:
    named = [
        Path(each) for command in runs(line, quick=False) for each in command if each.startswith(("tests", "docs"))
    ]
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
    assert len(runs(line, quick=True)) == 1


def test_the_height_of_a_terminal_is_not_a_line_of_spark() -> None:
    make = ["make", "-n", "-C", str(ROOT), "test-sparks"]
    shown = subprocess.run(make, env={**os.environ, "LINES": "50"}, capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in shown.splitlines() if "sparks.py" in line] == [
        [".venv/bin/python", "scripts/sparks.py"]
    ]


PIP = """
import pathlib, sys
if "pyspark==0.0.1" in sys.argv:
    sys.exit("ERROR: no network")
pathlib.Path(__file__).with_name("calls").open("a").write("one\\n")
pathlib.Path(sys.argv[sys.argv.index("--target") + 1]).mkdir()
"""


def installing(folder: Path, version: str) -> subprocess.Popen[str]:
    """A process that installs a release with a pip of ours."""
    if not (folder / "pip").is_dir():
        (folder / "pip").mkdir()
        (folder / "pip" / "__main__.py").write_text(PIP)
        # Without it the real one would come first.
        (folder / "pip" / "__init__.py").touch()
    code = f"import pathlib, scripts.sparks; print(scripts.sparks.pyspark({version!r}, pathlib.Path({str(folder)!r})))"
    environment = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "src")]),
    }
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_release_is_installed_once_however_many_runs_need_it(tmp_path: Path) -> None:
    # As after a run that was killed.
    (tmp_path / "9.8.7.part").mkdir()
    runs_at_once = [installing(tmp_path, "9.8.7") for _ in range(3)]
    for each in runs_at_once:
        out, err = each.communicate(timeout=60)
        assert (each.returncode, out.splitlines()[-1]) == (0, str([str(tmp_path / "9.8.7")])), err
    assert (tmp_path / "pip" / "calls").read_text() == "one\n"
    assert not (tmp_path / "9.8.7.part").exists()


def test_a_release_that_cannot_be_installed_is_reported_in_words(tmp_path: Path) -> None:
    process = installing(tmp_path, "0.0.1")
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert err == "ERROR: no network\nsparkjet: PySpark 0.0.1 was not installed; what pip says is above.\n"
    assert not (tmp_path / "0.0.1").exists()
