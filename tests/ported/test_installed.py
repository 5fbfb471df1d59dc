"""Texts of PySpark are found by their words; what a version no longer says is an error, not a test less."""

from __future__ import annotations

import re

import pytest

from tests.ported.installed import Loading, Text, docstring, example, session

TEXT = Text(
    "a text",
    """
import math

if True:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()

def area(r):
    return math.pi * r ** 2  # of a circle

first = area(
    1)
second = [area(2), rows]
shown(second).show(10)
""",
)


def test_a_statement_is_run_with_what_it_is_given() -> None:
    assert TEXT.run("second =", area=lambda r: -r, rows="ours") == [-2, "ours"]
    assert TEXT.run("def area", "first = area(1)") == pytest.approx(3.1416, abs=1e-4)
    assert TEXT.run("def area")(0) == 0
    assert TEXT.run("rows =", spark=session("ours")) == "ours"


def test_what_a_text_shows_is_returned() -> None:
    assert TEXT.run("shown(", shown=len, second=[1, 2, 3]) == 3


@pytest.mark.parametrize(("part", "count"), [("third =", 0), ("of a circle", 0), ("area(", 3)])
def test_words_that_no_statement_or_several_have_are_an_error(part: str, count: int) -> None:
    with pytest.raises(LookupError, match=re.escape(f"say {part!r}, not one")) as error:
        TEXT.run(part)
    assert str(error.value).startswith(f"a text: {count} statements of PySpark")


def test_a_text_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="structured_poetry"):
        example("structured_poetry")
    with pytest.raises(LookupError, match=r"docstring of Loading\.load: 0 statements"):
        docstring(Loading.load).run("df =")
