"""A pytest plugin: Sybil runs the examples of the Markdown pages and checks the pages' links.

The `python` blocks of a page run in order, in one namespace and an empty working directory; `python no-run` compiles
only; `python test` is run by pytest, with the job above it (`tests/test_wheels.py`), and `python elsewhere` is of other
programs, tried by its own test (`tests/tools/test_orchestrators.py`). A page or docstring that names
`spark` or a test server is given it under that name; others start no JVM.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator, pad
from sybil.parsers.markdown import CodeBlockParser

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE = re.compile(r"^(?P<indent> *)```[^\n`]*\n.*?^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
HEADING = re.compile(r"^#+ +(.+?)[ #]*$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?[^)]*\)")
SERVERS = (
    "postgres_dsn",
    "kafka_servers",
    "schema_registry",
    "rabbitmq_port",
    "artemis_port",
    "delta_kernel",
    "iceberg_jars",
    "jdbc_drivers",
    "grid_address",
    "grid_token",
)
"""Names under which a page finds a server, from the fixtures of these names."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects the pages at the root and in docs/; Markdown below tests/ is data."""
    root = parent.config.rootpath
    if file_path.suffix != ".md" or not (file_path.parent == root or file_path.is_relative_to(root / "docs")):
        return None
    page = Sybil(
        parsers=[CodeBlockParser("python", PythonEvaluator()), CodeBlockParser("python no-run", compiled), links],
        path=str(file_path.parent),
        filenames={file_path.name},
        fixtures=fixtures_of(file_path.read_text(encoding="utf-8")),
        setup=enter_directory,
        teardown=leave_directory,
    )
    collected: pytest.Collector | None = page.pytest()(file_path, parent)
    return collected


@pytest.fixture(autouse=True)
def _spark_in_docstrings(request: pytest.FixtureRequest) -> None:
    """Gives `spark` to the docstrings that use it."""
    if isinstance(request.node, pytest.DoctestItem) and uses_spark(
        "\n".join(example.source for example in request.node.dtest.examples)
    ):
        request.getfixturevalue("doctest_namespace")["spark"] = request.getfixturevalue("spark")


def uses_spark(source: str) -> bool:
    """Whether an example names the session; by its text, as it must be known before a JVM is started."""
    return re.search(r"\bspark\b(?!\s*=[^=])", source) is not None


def fixtures_of(text: str) -> list[str]:
    """The fixtures that a page's examples need."""
    blocks = (block[0] for block in FENCE.finditer(text))
    examples = "\n".join(block for block in blocks if block.lstrip().startswith("```python\n"))
    return [*(["spark"] if uses_spark(examples) else []), *(name for name in SERVERS if name in examples)]


def compiled(example: Example) -> None:
    """Compiles a block that is not to be run."""
    compile(pad(example.parsed, example.line + example.parsed.line_offset), example.path, "exec", dont_inherit=True)


def enter_directory(namespace: dict[str, Any]) -> None:
    """Runs a page as a script, in a directory that is empty at first."""
    namespace["__name__"] = "__main__"
    namespace["_directories"] = (Path.cwd(), Path(tempfile.mkdtemp()))
    os.chdir(namespace["_directories"][1])


def leave_directory(namespace: dict[str, Any]) -> None:
    """Stops what still streams, which would outlive its page with a page of stack traces, and cleans up."""
    if "spark" in namespace:
        for query in namespace["spark"].streams.active:
            query.stop()
    before, own = namespace["_directories"]
    os.chdir(before)
    shutil.rmtree(own)


def prose(text: str) -> str:
    """A page with its code blanked: there, brackets and hashes mean something else."""
    text = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return CODE.sub(lambda found: "c" * len(found[0]), text)


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(document: Document) -> Iterator[Region]:
    """A parser for Sybil: the relative links of a page, each checked on its own."""
    for found in LINK.finditer(prose(document.text)):
        yield Region(found.start(), found.end(), (found[1], found[2]), check_link)


def check_link(example: Example) -> str | None:
    """A complaint if the file, or its heading, does not exist."""
    target, anchor = example.parsed
    page = Path(example.path)
    path = (page.parent / target).resolve() if target else page
    known = path.exists()
    if known and anchor and path.suffix == ".md":
        known = anchor in anchors(path.read_text(encoding="utf-8"))
    return None if known else f"broken link: {target}#{anchor}" if anchor else f"broken link: {target}"
