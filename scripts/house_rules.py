"""Checks the house rules that no linter knows (CONTRIBUTING.md says why each exists)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_MODULE = 300
IMPURE = {"pyspark", "py4j", "pyarrow", "pandas"}
# In pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.~$*{}/-])/(?:home|work|root)" + r"/\w")
SLEEP = re.compile(r"\btime\." + r"sleep\(|\bfrom time " + r"import\b.*\bsleep\b")


def files_of(root: Path) -> list[Path]:
    """What is tracked or about to be: everything git does not ignore."""
    # safe.directory: in CI the checkout often belongs to another user, and git would refuse to look.
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := root / name).is_file())


def imports_of(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything a module imports, at whatever depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


class Rules:
    """The rules, applied to one checkout; each yields `file:line: what is wrong`."""

    def __init__(self, root: Path) -> None:
        """Reads the checkout at `root` once."""
        self.root = root
        self.files = files_of(root)
        self.modules = {path: ast.parse(path.read_bytes()) for path in self.below("src/**/*.py", "src/*.py")}

    def below(self, *patterns: str) -> list[Path]:
        """The files of the checkout that match."""
        matching = {path for pattern in patterns for path in self.root.glob(pattern)}
        return [path for path in self.files if path in matching]

    def at(self, path: Path, line: int, text: str) -> str:
        """One finding."""
        return f"{path.relative_to(self.root)}:{line}: {text}"

    def short_modules(self) -> Iterator[str]:
        """A module is one noun; past 300 lines it has become two."""
        for path in self.modules:
            lines = len(path.read_bytes().splitlines())
            if lines > LONGEST_MODULE:
                yield self.at(path, lines, f"{lines} lines, more than {LONGEST_MODULE}: one noun a file, split it")

    def first_sentences(self) -> Iterator[str]:
        """The first line of every module is its summary: one sentence."""
        for path, tree in self.modules.items():
            first = (ast.get_docstring(tree) or "").partition("\n")[0]
            if not first.endswith(".") or re.search(r"[.!?] [A-Z]", first):
                yield self.at(path, 1, "the docstring's first line must be one sentence ending in '.'")

    def pure_time(self) -> Iterator[str]:
        """Time is tested without Spark, so nothing it imports, directly or not, may import Spark."""
        source = self.root / "src"
        queue = [(path, "") for path in self.modules if path.is_relative_to(source / "sparkjet" / "time")]
        seen = {path for path, _ in queue}
        while queue:
            path, chain = queue.pop()
            parts = list(path.relative_to(source).with_suffix("").parts)
            for line, name in imports_of(self.modules[path], parts[:-1]):
                if name.partition(".")[0] in IMPURE:
                    yield self.at(path, line, f"sparkjet.time must not need {name}{chain}")
                found = self.module(name)
                if found and found not in seen:
                    seen.add(found)
                    queue.append((found, f" (imported by {path.relative_to(self.root)})"))

    def module(self, name: str) -> Path | None:
        """The file of ours behind an imported name, whose last part is a module or something inside one."""
        whole = self.root.joinpath("src", *name.split("."))
        for stem in (whole, whole.parent):
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if path in self.modules:
                    return path
        return None

    def no_sleeping_tests(self) -> Iterator[str]:
        """A test that sleeps is slow or flaky; wait for the condition, or move the injected clock."""
        for path in self.below("tests/**/*.py"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if SLEEP.search(line):
                    yield self.at(path, number, "tests do not sleep: wait for a condition or move the clock")

    def no_machine_paths(self) -> Iterator[str]:
        """A path of somebody's machine works nowhere else."""
        for path in self.files:
            content = path.read_bytes()
            if b"\0" in content:
                continue
            for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
                if found := MACHINE_PATH.search(line):
                    yield self.at(path, number, f"a path of one machine: {found.group()}…")

    def broken(self) -> list[str]:
        """Everything that is wrong."""
        rules = (
            self.short_modules, self.first_sentences, self.pure_time, self.no_sleeping_tests, self.no_machine_paths,
        )  # fmt: skip
        return [finding for rule in rules for finding in rule()]


def main(root: Path) -> int:
    """Prints what is wrong; the exit status says whether anything is."""
    rules = Rules(root)
    broken = rules.broken()
    for finding in broken:
        print(finding)
    print(f"house rules: {len(broken)} broken in {len(rules.files)} files")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
