from __future__ import annotations

from collections.abc import Callable

import pytest

from scripts.doc_examples import anchors, uses_spark

FENCE = "```"
Run = Callable[[str], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs one page, with FENCE for the fences so that they do not end this file's own."""

    def run_page(text: str) -> pytest.RunResult:
        pytester.path.joinpath("page.md").write_text(text.replace("FENCE", FENCE))
        return pytester.runpytest_inprocess("-p", "scripts.doc_examples", "-p", "no:cacheprovider", "page.md")

    return run_page


def test_blocks_share_a_namespace_and_run_in_order_in_an_empty_directory(run: Run) -> None:
    page = """
FENCEpython
import os
assert os.listdir() == []
x = 1
FENCE
then
FENCEpython
assert x == 1
FENCE
"""
    run(page).assert_outcomes(passed=2)


def test_a_failing_block_fails_and_names_its_line(run: Run) -> None:
    result = run("# Title\n\nFENCEpython\nx = 1\nassert x == 2\nFENCE\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*page.md:5: AssertionError*"])


def test_blocks_that_are_not_run_are_compiled(run: Run) -> None:
    run("FENCEpython no-run\nassert False\nFENCE\n\nFENCEbash\nno python\nFENCE\n").assert_outcomes(passed=1)
    result = run("FENCEpython no-run\nassert assert\nFENCE\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*SyntaxError*"])


def test_links(run: Run) -> None:
    good = "# The title, `code`\n[a](page.md) [b](#the-title-code) [c](https://nowhere.invalid/x) `[d](gone.md)`\n"
    run(good).assert_outcomes(passed=2)
    result = run("# Title\n[a](gone.md) [b](#gone) [c](page.md#title)\n")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*broken link: gone.md", "*broken link: #gone"])


def test_markdown_elsewhere_is_data(pytester: pytest.Pytester) -> None:
    pytester.mkdir("tests").joinpath("cases.md").write_text("[a](gone.md)\n")
    result = pytester.runpytest_inprocess("-p", "scripts.doc_examples", "tests")
    result.assert_outcomes()


def test_who_needs_a_session() -> None:
    assert uses_spark("df = spark.range(3)")
    assert not uses_spark("import pyspark\nfrom pyspark.sql import Row")
    assert not uses_spark("spark = SparkSession.builder.getOrCreate()")


def test_anchors() -> None:
    assert anchors("# One, two!\n```\n# not this\n```\n## `sj.window` in-depth\n") == {"one-two", "sjwindow-in-depth"}
