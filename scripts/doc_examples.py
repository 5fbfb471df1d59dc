"""A pytest plugin that runs the examples of docstrings and Markdown pages, and checks the pages' links.

Whatever names `spark` is given the shared session under that name; what does not starts no JVM. The `python` blocks of
a page are one test: they run in order, in one namespace and an empty working directory; `python no-run` compiles only.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import CodeType

    from pyspark.sql import SparkSession

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?)[ #]*$", re.MULTILINE)
SERVERS = ("postgres_dsn", "kafka_servers")
"""Names under which a page finds a server, from the fixtures of these names."""
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?[^)]*\)")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Page | None:
    """Collects README and its like, and docs/; Markdown below tests/ is data."""
    root = parent.config.rootpath
    is_page = file_path.suffix == ".md" and (file_path.parent == root or file_path.is_relative_to(root / "docs"))
    return Page.from_parent(parent, path=file_path) if is_page else None


def stop_queries(session: SparkSession) -> None:
    """Stops what still streams: a query left behind outlives its page, or the session, with a page of stack traces."""
    for query in session.streams.active:
        query.stop()


@pytest.fixture(autouse=True)
def _spark_in_docstrings(request: pytest.FixtureRequest) -> None:
    """Gives `spark` to the docstrings that use it."""
    if isinstance(request.node, pytest.DoctestItem) and uses_spark(
        "\n".join(example.source for example in request.node.dtest.examples)
    ):
        request.getfixturevalue("doctest_namespace")["spark"] = request.getfixturevalue("spark")


def uses_spark(source: str) -> bool:
    """Whether an example names the session; by its text, because it must be known before a JVM is started."""
    return re.search(r"\bspark\b(?!\s*=[^=])", source) is not None


def prose(text: str) -> str:
    """A page without its code: there, brackets and hashes mean something else."""
    return re.sub(r"`[^`\n]+`", "code", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The names GitHub gives to the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Page(pytest.File):
    """A Markdown page: its examples are one test, its links another."""

    def collect(self) -> Iterator[pytest.Function]:
        """The page's tests."""
        text = self.path.read_text(encoding="utf-8")
        blocks = []
        for fence in FENCE.finditer(text):
            language, *words = fence["info"].split() or [""]
            if language == "python":
                # Blank lines in front: a traceback then names the page's own line.
                before = text.count("\n", 0, fence.start("body"))
                source = "\n" * before + textwrap.dedent(fence["body"])
                # dont_inherit: a reader's copy of the example does not have this file's `from __future__`.
                code = compile(source, str(self.path), "exec", dont_inherit=True)
                if "no-run" not in words:
                    blocks.append((code, fence["body"]))
        if blocks:
            source = "\n".join(body for _, body in blocks)
            servers = [name for name in SERVERS if name in source]
            run = self.runner([code for code, _ in blocks], needs_spark=uses_spark(source), servers=servers)
            yield pytest.Function.from_parent(self, name="examples", callobj=run)
        yield pytest.Function.from_parent(self, name="links", callobj=lambda: self.check_links(text))

    def runner(self, blocks: list[CodeType], *, needs_spark: bool, servers: list[str]) -> Callable[..., None]:
        """A test function that runs the blocks in order, in one namespace and an empty directory."""

        def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **given: SparkSession | str) -> None:
            monkeypatch.chdir(tmp_path)
            namespace: dict[str, Any] = {"__name__": "__main__", **given}
            try:
                for block in blocks:
                    exec(block, namespace)  # noqa: S102 (our own pages)
            finally:
                for session in given.values():
                    if not isinstance(session, str):
                        stop_queries(session)

        def run_with_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
            run(tmp_path, monkeypatch, spark=spark)

        def run_with_servers(
            tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, request: pytest.FixtureRequest
        ) -> None:
            found: dict[str, str] = {name: request.getfixturevalue(name) for name in servers}
            run(tmp_path, monkeypatch, spark=spark, **found)

        def run_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
            run(tmp_path, monkeypatch)

        if servers:
            return run_with_servers
        return run_with_spark if needs_spark else run_without

    def check_links(self, text: str) -> None:
        """Fails on a relative link whose file, or heading in a page, does not exist."""
        broken = []
        for target, anchor in LINK.findall(prose(text)):
            path = (self.path.parent / target).resolve() if target else self.path
            known = path.exists()
            if known and anchor and path.suffix == ".md":
                known = anchor in anchors(path.read_text(encoding="utf-8"))
            if not known:
                broken.append(f"{target}#{anchor}" if anchor else target)
        if broken:
            page = self.path.relative_to(self.config.rootpath)
            pytest.fail(f"{page}: broken links: {', '.join(broken)}", pytrace=False)
