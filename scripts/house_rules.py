"""Checks the house rules that no linter knows (CONTRIBUTING.md gives the reasons)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_MODULE = 450
# In pieces, so that this file does not find itself.
INDEX_ROW = re.compile(r"^\| `([\w/]+)` \| (.+) \|$", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.~$*{}/-])/(?:home|work|root)" + r"/\w")


def files_of(root: Path) -> list[Path]:
    """What is tracked or about to be: everything git does not ignore."""
    # safe.directory: in CI the checkout often belongs to another user, and git would refuse to look.
    git = ["git", "-c", "safe.directory=*", "-C", str(root)]
    command = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := root / name).is_file())


class Rules:
    """The rules, applied to one checkout; each yields `file:line: what is wrong`."""

    def __init__(self, root: Path) -> None:
        """Reads the checkout at `root` once."""
        self.root = root
        self.files = files_of(root)

    def below(self, *patterns: str) -> list[Path]:
        """The files of the checkout that match."""
        matching = {path for pattern in patterns for path in self.root.glob(pattern)}
        return [path for path in self.files if path in matching]

    def at(self, path: Path, line: int, text: str) -> str:
        """One finding."""
        return f"{path.relative_to(self.root)}:{line}: {text}"

    def short_modules(self) -> Iterator[str]:
        """A module is one idea with its helpers; past 450 lines it has become two."""
        for path in self.below("src/**/*.py", "src/*.py"):
            lines = len(path.read_bytes().splitlines())
            if lines > LONGEST_MODULE:
                yield self.at(path, lines, f"{lines} lines, more than {LONGEST_MODULE}: one idea a file, split it")

    def tested_modules(self) -> Iterator[str]:
        """A module is tested by a file of its name, or by those that tests/README.md lists for it."""
        index = self.root / "tests" / "README.md"
        listed = dict(INDEX_ROW.findall(index.read_text(encoding="utf-8"))) if index.is_file() else {}
        source = self.root / "src" / "sparkjet"
        for path in self.below("src/**/*.py"):
            module = path.relative_to(source).with_suffix("")
            own = self.root / "tests" / module.parent / f"test_{module.name}.py"
            if module.name.startswith("__") or own.is_file():
                continue
            tests = re.findall(r"`([^`]+)`", listed.pop(str(module), ""))
            if not tests:
                yield self.at(path, 1, f"no {own.relative_to(self.root)}, and no row in tests/README.md")
            for test in tests:
                if not (self.root / "tests" / test).is_file():
                    yield self.at(index, 1, f"{module} is tested by tests/{test}, which does not exist")
        for module in sorted(listed):
            yield self.at(index, 1, f"{module} has a test file of its name, or does not exist: remove its row")

    def no_machine_paths(self) -> Iterator[str]:
        """A path of one machine works on no other."""
        for path in self.files:
            content = path.read_bytes()
            if b"\0" in content:
                continue
            for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
                if found := MACHINE_PATH.search(line):
                    yield self.at(path, number, f"a path of one machine: {found.group()}…")

    def broken(self) -> list[str]:
        """Everything that is wrong."""
        return [*self.short_modules(), *self.tested_modules(), *self.no_machine_paths()]


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
