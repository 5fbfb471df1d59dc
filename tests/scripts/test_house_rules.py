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
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_good_checkout(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(checkout, "tests/test_frames.py", "import time\n\nassert time.monotonic()\n")
    assert main(checkout) == 0
    assert capsys.readouterr().out == "house rules: 0 broken in 2 files\n"


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("src/sparkjet/long.py", GOOD + "\n" * 300, "src/sparkjet/long.py:301: 301 lines, more than 300"),
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
