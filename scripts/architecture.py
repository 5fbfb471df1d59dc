"""Draws the layers of docs/architecture.md from the imports: `python scripts/architecture.py` rewrites that part.

The layers are those that import-linter enforces (pyproject.toml), the arrows are the imports that grimp finds, and what
a package is for is the first line of its docstring. A test fails when the page is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
from importlinter.api import read_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- layers, drawn by scripts/architecture.py -->\n", "<!-- end of layers -->\n"
PACKAGE, GRID = "sparkjet", "sparkjet_grid"

Imports = dict[str, frozenset[str]]
"""By package or module directly below sparkjet, and for the grid beside it: those that it imports."""


def layers_of(root: Path) -> list[list[str]]:
    """The layers as import-linter has them, the highest first; those of one layer do not import each other."""
    contracts = read_configuration(str(root / "pyproject.toml"))["contracts_options"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    # import-linter has its own contract that the grid is below all of sparkjet.
    return [*(re.split(r"\s*[|:]\s*", str(layer)) for layer in layers), [GRID]]


def imports_of() -> Imports:
    """The imports between the packages and modules directly below sparkjet, and of the grid."""
    # No cache: it would be written into the directory in which this happens to run.
    graph = grimp.build_graph(PACKAGE, GRID, cache_dir=None)
    # The errors of both are made one family there. Drawn, it would imply all arrows to the grid.
    graph.remove_import(importer=f"{PACKAGE}.errors", imported=f"{GRID}.errors")
    children = sorted([*graph.find_children(PACKAGE), GRID])
    for child in children:
        if graph.find_children(child):
            graph.squash_module(child)
    names = {child: child.removeprefix(f"{PACKAGE}.") for child in children}
    return {
        names[child]: frozenset(
            names[each] for each in graph.find_modules_directly_imported_by(child) if each in names and each != child
        )
        for child in children
    }


def reachable(start: str, imports: Mapping[str, frozenset[str]]) -> set[str]:
    """Whatever a package imports, directly or through others."""
    found: set[str] = set()
    queue = list(imports[start])
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += imports[name]
    return found


def reduced(imports: Mapping[str, frozenset[str]]) -> Imports:
    """The imports without those that others imply; there are no cycles, or import-linter would have failed."""
    implied = {name: set().union(*(reachable(each, imports) for each in imports[name])) for name in imports}
    return {name: imports[name] - implied[name] for name in imports}


def place_of(root: Path, name: str) -> Path:
    """The folder of a package, or the file of a module."""
    path = root / "src" / (name if name == GRID else f"{PACKAGE}/{name}")
    return path if path.is_dir() else path.with_suffix(".py")


def purpose(root: Path, name: str) -> str:
    """The first line of a package's docstring, as Markdown."""
    place = place_of(root, name)
    path = place / "__init__.py" if place.is_dir() else place
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return re.sub(r"(?::\w+:)?`+([^`]+)`+", r"`\1`", first)


def modules(root: Path, name: str) -> int:
    """The number of modules that a package consists of."""
    return max(1, sum(path.stem != "__init__" for path in place_of(root, name).rglob("*.py")))


def drawn(layers: Sequence[Sequence[str]], imports: Imports, root: Path) -> str:
    """The layers as a diagram and as a table."""
    diagram = [f"    {name} --> {each}" for name in imports for each in sorted(reduced(imports)[name])]
    # Listed in the order of the layers, which Mermaid keeps; without arrows a package would be missing.
    nodes = [f"    {name}" for layer in layers for name in layer]
    rows = []
    for number, layer in enumerate(layers, 1):
        for name in layer:
            link = f"[`{name}`](../{place_of(root, name).relative_to(root)})"
            below = ", ".join(f"`{each}`" for flat in layers for each in flat if each in imports[name])
            rows.append(f"| {number} | {link} | {purpose(root, name)} | {modules(root, name)} | {below or '–'} |")
    lines = [
        *("```mermaid", "flowchart TD", *nodes, *diagram, "```", ""),
        *("| layer | package | what it is for | modules | imports |", "|---|---|---|---|---|", *rows),
    ]
    return "\n".join(lines) + "\n"


def renewed(page: str, layers: str) -> str:
    """The page with its part between the two comments replaced."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} needs the lines {BEGIN.strip()} and {END.strip()}.")
    return before + BEGIN + layers + END + after


def main() -> int:
    """Rewrites the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(renewed(page, drawn(layers_of(ROOT), imports_of(), ROOT)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
