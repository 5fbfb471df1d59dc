"""Counts what a house of code weighs: `python -m scripts.house_counts [PACKAGE…]`.

A line of code is one that is neither blank, nor a comment, nor part of a docstring, nor of an import statement. A
module has a single importer if exactly one other module of the packages imports it, ``__init__`` included; what is only
imported from outside (tests, scripts) has none. Behind it stands why it is not a part of its importer: users import
names from it; the importer is in another folder, is the door of the package (``__init__``) or imports it only when it
is used; both together, or with the others that only this importer imports, would exceed the limit of a file; it has a
test file of its name; or :data:`REASONS` says why. A circle is a set of modules that reach each other by imports;
imports below TYPE_CHECKING do not run and do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp

from scripts.house_rules import LONGEST_MODULE
from scripts.reference import OTHERS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["sparkjet", "sparkjet_grid"]
REASONS = {
    "sparkjet.aggregates.built_in": "tests call the aggregates by these names, of which some hide Python's own",
    "sparkjet.connectors.kafka.formats.json_shapes": "Connect's JSON: it knows nothing of Debezium's envelopes",
    "sparkjet.connectors.kafka.formats.row_ddl": "a parser: it knows nothing of options",
    "sparkjet.stateful.functions.variables": "how state is stored, of which the handle knows nothing",
}
"""Why a module is a file by itself, where nothing else shows it: two ideas that would fit into one file."""
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Lines:
    """Lines of a file, each counted once."""

    code: int
    docstrings: int
    imports: int
    comments: int
    blank: int


def lines_of(text: str) -> Lines:
    """Lines of a file by what they are."""
    tree = ast.parse(text)
    docstrings, imports = set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A string below an assignment documents it, as the first of a body does.
            for each in node.body:
                if (
                    isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                ):
                    docstrings |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    used, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in SKIPPED:
            used |= set(range(token.start[0], token.end[0] + 1))
    code = used - docstrings - imports
    total = len(text.splitlines())
    only = comments - used
    blank = total - len(used | only)
    return Lines(len(code), len(docstrings), len(imports - docstrings), len(only), blank)


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Sets of modules that reach each other, largest first."""
    found: list[list[str]] = []
    seen: set[str] = set()
    for module in sorted(graph.modules):
        if module in seen:
            continue
        below = graph.find_upstream_modules(module)
        circle = sorted({module} | {each for each in below if module in graph.find_upstream_modules(each)})
        seen |= set(circle)
        if len(circle) > 1:
            found.append(circle)
    return sorted(found, key=len, reverse=True)


def file_of(module: str) -> Path:
    """The file of a module."""
    path = ROOT.joinpath("src", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def on_use(importer: str, module: str) -> bool:
    """Whether a module is only imported within functions of another."""
    tree = ast.parse(file_of(importer).read_text(encoding="utf-8"))
    above, _, name = module.rpartition(".")
    return not any(
        isinstance(each, ast.ImportFrom)
        and (each.module == module or (each.module == above and any(alias.name == name for alias in each.names)))
        for each in tree.body
    )


def reason(module: str, importer: str, siblings: Sequence[str] = ()) -> str:
    """Why a module is no part of its only importer, which may have others; empty if no reason shows."""
    parts = module.split(".")
    if any(name.startswith(f"{module}.") for names in OTHERS.values() for name in names):
        return "public names"
    source, user = file_of(module), file_of(importer)
    if source.parent != user.parent or source.name == "__init__.py":
        return "another folder"
    if user.name == "__init__.py" or on_use(importer, module):
        return "the door of the package" if user.name == "__init__.py" else "imported on use"
    both = _lines(source) + _lines(user)
    if both > LONGEST_MODULE:
        return f"{both} lines together"
    if ROOT.joinpath("tests", *parts[1:-1], f"test_{parts[-1]}.py").exists():
        return "tests of its own"
    every = _lines(user) + sum(_lines(file) for file in map(file_of, siblings) if file.parent == user.parent)
    return f"{every} lines with its siblings" if every > LONGEST_MODULE else REASONS.get(module, "")


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def main(packages: list[str]) -> None:
    """Print the counts of each package."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
    users = {module: next(iter(found)) for module, found in sorted(importers.items()) if len(found) == 1}
    for package in packages:
        files = sorted((ROOT / "src" / package).rglob("*.py"))
        counted = [(file, lines_of(file.read_text(encoding="utf-8"))) for file in files]
        single = [module for module in users if module.split(".")[0] == package]
        print(f"{package}: {len(files)} files, {sum(each.code for _, each in counted):,} lines of code")
        for name in ("docstrings", "imports", "comments", "blank"):
            print(f"  {name:<12}{sum(getattr(each, name) for _, each in counted):>8,}")
        by_room: Counter[str] = Counter()
        for file, each in counted:
            by_room[file.relative_to(ROOT / "src" / package).parts[0].removesuffix(".py")] += each.code
        for room, code in by_room.most_common():
            print(f"  {room:<24}{code:>8,}")
        reasons = {
            module: reason(module, users[module], [each for each, its in users.items() if its == users[module]])
            for module in single
        }
        unexplained = sum(not each for each in reasons.values())
        print(f"  modules with a single importer: {len(single)}, {unexplained} without a reason")
        for module in single:
            print(f"    {module} <- {users[module]}: {reasons[module] or '?'}")
    for circle in circles(graph):
        print(f"circle: {', '.join(circle)}")


if __name__ == "__main__":
    main(sys.argv[1:] or PACKAGES)
