"""Errors that a type checker finds: in misspelt names, and none in the examples of the pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from sybil import Document
from sybil.parsers.markdown import CodeBlockParser

from scripts.doc_examples import SERVERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]

CONFIGURATION = """
[mypy]
strict = true
warn_unreachable = true
follow_imports = silent
# An example is a script to be read: no annotations, and a name may mean something else further down.
allow_redefinition = true
disallow_untyped_defs = false
disallow_incomplete_defs = false
disallow_untyped_calls = false
[mypy-confluent_kafka.*,pyspark.*]
implicit_reexport = true
[mypy-pika.*,psycopg.*,pandas.*,pyarrow.*,py4j.*]
ignore_missing_imports = true
"""
PROVIDED = "; ".join(
    ["from pyspark.sql import SparkSession", "spark: SparkSession", *(f"{name}: str" for name in SERVERS)]
)
"""The names that a page is run with."""
ASSUMED = (
    "from pyspark.sql import DataFrame, SparkSession, functions as F; import sparkjet as sj; "
    "from sparkjet import functions as J; from sparkjet.api.grouped import GroupedStream; spark: SparkSession; "
    "readings: DataFrame; stream: sj.Stream; windows: GroupedStream"
)
"""The names that examples which are not run assume."""
MISSPELT = """
import sparkjet as sj
from pyspark.sql import functions as F
from sparkjet import functions as J

def misspelt(stream: sj.Stream) -> None:
    stream.withWatermrk("ts", "1 minute")
    after: int = "a string"
    grouped = stream.groupBy(sj.window("ts", "1 minute"))
    grouped.pivott("v")
    result = grouped.agg(J.mediann("v"))
    result.show()
    result.writeStream.toTabel("t")
    result.writeStream.trigger(continuous="1 second")
    result.writeStream.trigger(availableNow=True).start().awaitTermination()
    stream.groupBy(F.window("ts", "1 minute"), "k").pivott("v")
"""
WRONG = """# A page

```python
import sparkjet as sj
readings = spark.rang(3)
```

```python no-run
stream.wher("v > 1")
```
"""


def laid_out(page: Document, language: str, declared: str) -> str:
    """The blocks of a page on their own lines, below what they need in the first, which is never a block's."""
    lines = [declared]
    for block in CodeBlockParser(language)(page):
        before = page.text.count("\n", 0, block.start) + 1 + block.parsed.line_offset
        lines += [""] * (before - len(lines))
        lines += block.parsed.splitlines()
    return "\n".join(lines) + "\n"


def module(page: Path, kind: str) -> str:
    """The module of a page's examples: with a suffix, as one called time would hide Python's."""
    return f"{page.stem.replace('-', '_')}_{kind}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """mypy's errors in each page and in the misspelt names, by file; one run for all."""
    place = tmp_path_factory.mktemp("types")
    (place / "mypy.ini").write_text(CONFIGURATION)
    (place / "misspelt.py").write_text(MISSPELT.lstrip())
    wrong = place / "wrong.md"
    wrong.write_text(WRONG)
    for page in [*PAGES, wrong]:
        document = Document(page.read_text(encoding="utf-8"), str(page))
        examples = laid_out(document, "python", PROVIDED)
        fragments = laid_out(document, "python no-run", ASSUMED)
        (place / f"{module(page, 'examples')}.py").write_text(examples)
        (place / f"{module(page, 'fragments')}.py").write_text(fragments)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary"]
    files = sorted(file.name for file in place.glob("*.py"))
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    ended = subprocess.run([*command, *files], cwd=place, env=environment, capture_output=True, text=True, check=False)
    # 2 is an error of mypy itself.
    assert (ended.returncode, ended.stderr) == (1, "")
    reported = defaultdict(list)
    for line in ended.stdout.splitlines():
        file, _, text = line.partition(".py:")
        reported[file].append(text)
    return reported


def test_misspelt_names_are_reported_with_the_code_after_them(found: dict[str, list[str]]) -> None:
    # As on Spark's DataFrame, an unknown attribute is a column.
    expected = [
        r'6: error: "Column" not callable',
        "7: error: Incompatible types in assignment",
        '9: error: "GroupedStream" has no attribute "pivott"',
        '10: error: Module has no attribute "mediann"',
        r'11: error: "Column" not callable',
        '12: error: "StreamWriter" has no attribute "toTabel"',
        '13: error: .*"continuous".*"trigger"',
        '15: error: Item "GroupedStream" of ".*" has no attribute "pivott"',
        '15: error: Item "KeyedStream" of ".*" has no attribute "pivott"',
    ]
    reported = [line for line in found["misspelt"] if " error: " in line]
    assert len(reported) == len(expected), reported
    for line, pattern in zip(reported, expected, strict=True):
        assert re.match(pattern, line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_have_no_type_errors(found: dict[str, list[str]], page: Path) -> None:
    assert [*found[module(page, "examples")], *found[module(page, "fragments")]] == []


def test_an_error_of_a_page_is_reported_on_its_line(found: dict[str, list[str]]) -> None:
    wrong = Path("wrong.md")
    (example,), (fragment,) = (found[module(wrong, kind)] for kind in ("examples", "fragments"))
    assert example.startswith('5: error: "SparkSession" has no attribute "rang"')
    assert fragment.startswith('9: error: "Column" not callable')
