"""Each line of a file is counted once, as what it is."""

from __future__ import annotations

from pathlib import Path

import grimp
import pytest

from scripts.house_counts import PACKAGES, REASONS, Lines, circles, lines_of, reason

SOURCE = Path(__file__).resolve().parents[2] / "src" / "sparkjet"

TEXT = '''"""Module.

More.
"""

import os
from a import (
    b,
)

# why
LIMIT = 3
"""What it is for."""


class C:
    """One line."""

    def f(self) -> str:
        # why
        return """
text that is code

"""  # because
'''


def test_lines_are_what_they_are() -> None:
    assert lines_of(TEXT) == Lines(code=7, docstrings=6, imports=4, comments=2, blank=5)


def test_every_line_is_counted_once() -> None:
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found = lines_of(text)
        assert found.code + found.docstrings + found.imports + found.comments + found.blank == len(text.splitlines())


def test_circles() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f"), ("f", "e")):
        for module in (importer, imported):
            if module not in graph.modules:
                graph.add_module(module)
        graph.add_import(importer=importer, imported=imported)
    assert circles(graph) == [["a", "b", "c"], ["e", "f"]]


@pytest.mark.parametrize(
    ("module", "importer", "why"),
    [
        ("connectors.delta.format", "connectors.formats", "another folder"),
        ("windows.sliding", "windows", "the door of the package"),
        ("cli.doctor", "cli.commands", "imported on use"),
        ("engine.epoch", "engine.engine", "lines together"),
        ("catalyst.shuffles", "catalyst.kept_plans", "tests of its own"),
        ("tools.replay", "tools.plotting", "public names"),
        ("aggregates.bits", "aggregates.built_in", ""),
    ],
)
def test_reasons_of_a_module_with_a_single_importer(module: str, importer: str, why: str) -> None:
    found = reason(f"sparkjet.{module}", f"sparkjet.{importer}")
    assert found.endswith(why) if why else not found


def test_a_module_may_be_too_large_for_its_importer_with_the_others_of_it() -> None:
    siblings = [f"sparkjet.aggregates.{name}" for name in ("bits", "distinct_values", "quantiles", "histograms")]
    assert reason(siblings[0], "sparkjet.aggregates.built_in", siblings).endswith("lines with its siblings")
    assert not reason(siblings[0], "sparkjet.aggregates.built_in", siblings[:1])


@pytest.mark.parametrize("module", REASONS)
def test_a_reason_that_is_given_is_needed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    (importer,) = graph.find_modules_that_directly_import(module)
    monkeypatch.delitem(REASONS, module)
    assert not reason(module, importer)
