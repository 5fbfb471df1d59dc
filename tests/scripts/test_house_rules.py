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
        (
            "src/sparkjet/time/frames.py",
            GOOD + "rows = session.read.parquet(file.read())\n",
            "time/frames.py:2: reads by patterns",
        ),
        (
            "src/sparkjet/time/frames.py",
            GOOD + 'logger = logging.getLogger("sparkjet")\n',
            "time/frames.py:2: a log of its own",
        ),
        (
            "src/sparkjet/time/frames.py",
            GOOD + 'logger = logging.getLogger("sparkjet.grid")\n',
            "time/frames.py:2: a log of its own",
        ),
        (
            "src/sparkjet/time/frames.py",
            GOOD + 'def _length(text):\n    """One noun.\n\n    Raises:\n        ValueError: It is none.\n    """\n',
            "time/frames.py:2: Raises: of a private function",
        ),
        ("src/sparkjet_grid/view.py", GOOD, "src/sparkjet_grid/view.py:1: no tests/grid/test_view.py"),
        ("docs/a.md", "In `" + "/ho" + "me/me/data`.\n", "docs/a.md:1: a path of one machine"),
    ],
)
def test_each_rule(checkout: Path, name: str, text: str, finding: str) -> None:
    write(checkout, name, text)
    (broken,) = Rules(checkout).broken()
    assert finding in broken


# In pieces, so that this file names no origin itself.
ORIGINS = [
    "From Spark's " + "example `words.py`.",
    "From the " + "documentation of `flights`, which reads the positions of aircraft.",
    "This is Spark's `words.py` (" + "Apache-2.0).",
    'SOURCES = "flights 0.1.11, ' + "flights/{}, " + 'Apache-2.0"',
    "# flights 0.1.11, " + "flights/writers/stream.py, Writer.start",
    "# " + "Docstring of DataFrame.distinct",
    "# SPDX-" + "License-Identifier: MIT",
    "# Copy" + "right (c) 2023 somebody",
    '"""The exercises, written in PySpark ' + 'after the Java of a course."""',
    "after Flink's " + "words.sql",
    "after Spark's Structured Streaming " + "Programming Guide, joins",
    "Each query is the text of its " + "authors.",
    "# Adapted " + "from https://example.org/words",
    "    // copied from " + "Flink's examples",
]


@pytest.mark.parametrize("line", ORIGINS)
def test_no_file_names_the_origin_of_its_text(checkout: Path, line: str) -> None:
    write(checkout, "tests/time/words.py", "one = 1\n" + line + "\n")
    (broken,) = Rules(checkout).broken()
    assert broken.startswith("tests/time/words.py:2: names the origin of its text: ")


def test_what_is_compared_with_may_be_named(checkout: Path) -> None:
    prose = [
        "Jet's manual warns of two effects; from Spark's sources rows come in the order of Flink's documentation.",
        "Spark's commit log is written after the sink. After the restart, files are copied from a member.",
        "| stomp.py 9.0 | 28 µs | Apache-2.0, pure Python |",
        "Nexmark q5, as Spark 4.2.0, Flink and Jet run it. Licence: Apache-2.0.",
        "from sparkjet.catalyst.columns import TIME, quoted",
    ]
    write(checkout, "docs/a.md", "\n".join(prose))
    write(checkout, "LICENSE", "Licensed " + "under the Apache License, Version 2.0\n")
    assert not Rules(checkout).broken()


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
