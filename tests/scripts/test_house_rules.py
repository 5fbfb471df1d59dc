from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.house_rules import Rules, main

GOOD = '"""One noun."""\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, "src/sparkjet/time/frames.py", GOOD)
    write(tmp_path, "tests/time/test_frames.py", "")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_good_checkout(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(checkout) == 0
    assert capsys.readouterr().out == "house rules: 0 broken in 2 files\n"


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("src/sparkjet/time/frames.py", GOOD + "\n" * 450, "time/frames.py:451: 451 lines, more than 450"),
        ("src/sparkjet/time/lags.py", GOOD, "src/sparkjet/time/lags.py:1: no tests/time/test_lags.py"),
        (
            "tests/README.md",
            "| `time/lags` | `time/test_frames.py` |\n",
            "time/lags has a test file of its name",
        ),
        ("docs/a.md", "In `" + "/ho" + "me/me/data`.\n", "docs/a.md:1: a path of one machine"),
    ],
)
def test_each_rule(checkout: Path, name: str, text: str, finding: str) -> None:
    write(checkout, name, text)
    (broken,) = Rules(checkout).broken()
    assert finding in broken


def test_ignored_files_and_addresses_are_not_looked_at(checkout: Path) -> None:
    write(checkout, ".gitignore", "build/\n")
    write(checkout, "build/a.txt", "/ho" + "me/me/data\n")
    write(checkout, "docs/a.md", "https://example.org/ho" + "me/page and ~/work" + "/x\n")
    assert not Rules(checkout).broken()


def test_a_module_may_be_tested_by_other_files(checkout: Path) -> None:
    write(checkout, "src/sparkjet/time/lags.py", GOOD)
    write(checkout, "tests/README.md", "| `time/lags` | `time/test_frames.py`, `test_more.py` |\n")
    (broken,) = Rules(checkout).broken()
    assert broken.endswith("time/lags is tested by tests/test_more.py, which does not exist")
    write(checkout, "tests/test_more.py", "")
    assert not Rules(checkout).broken()
