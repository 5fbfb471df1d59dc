from __future__ import annotations

import pytest

from scripts.architecture import BEGIN, END, PAGE, ROOT, drawn, imports_of, layers_of, purpose, reduced, renewed


def test_the_page_shows_the_imports_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    fresh = renewed(page, drawn(layers_of(ROOT), imports_of(), ROOT))
    assert page == fresh, "docs/architecture.md is stale: run `.venv/bin/python scripts/architecture.py`"


def test_every_package_is_in_a_layer_and_imports_only_from_below() -> None:
    layers, imports = layers_of(ROOT), imports_of()
    depth = {name: number for number, layer in enumerate(layers) for name in layer}
    assert depth.keys() == imports.keys()
    assert [(name, each) for name, below in imports.items() for each in below if depth[each] <= depth[name]] == []
    assert {"plan", "sinks", "windows"} <= imports["engine"]


def test_arrows_that_others_imply_are_not_drawn() -> None:
    imports = {"a": frozenset("bcd"), "b": frozenset("c"), "c": frozenset("d"), "d": frozenset[str]()}
    assert reduced(imports) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("d"), "d": frozenset()}


def test_only_the_part_between_the_comments_is_replaced() -> None:
    assert renewed(f"before\n{BEGIN}old\n{END}after\n", "new\n") == f"before\n{BEGIN}new\n{END}after\n"
    with pytest.raises(ValueError, match="needs the lines"):
        renewed(f"{BEGIN}old\n", "new\n")


def test_what_a_package_is_for_is_the_first_line_of_its_docstring() -> None:
    assert purpose(ROOT, "api") == "The user-facing objects: streams, results, writers and queries."
    assert "`python -m sparkjet`" in purpose(ROOT, "__main__")
