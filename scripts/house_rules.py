"""Checks the house rules that no linter knows (CONTRIBUTING.md gives the reasons)."""

from __future__ import annotations

import ast
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
TEXTS = r"(?:documentation|docs|docstrings?|examples?|[Gg]uide|manual|training|tutorial|README|source code)\b"
TAKEN = r"(?:[Cc]opied|[Aa]dapted|[Bb]orrowed|[Qq]uoted|[Rr]eproduced|[Tt]ranslated|[Vv]erbatim)"
ORIGIN = re.compile(
    "|".join(
        (
            # A licence behind what it is for, or at the head of a file.
            r"[(,] ?(?:Apache(?: Licen[sc]e|-2)|(?:MIT|BSD|L?GPL|MPL|EPL)\b|CC[ -]BY)",
            r"SPDX-Licen[sc]e|\b[Ll]icensed (?:under|to)\b|\bCopyright \(",
            # A version with a file of it.
            r"[\w-] \d+\.\d+\.\d+, \S+/\S",
            # From whom, or after what.
            rf"\b{TAKEN} from (?:the )?(?:[A-Z`]|https?:|[\w-]+'s |{TEXTS})",
            rf"\b(?:[Ff]rom|[Aa]fter) the {TEXTS} (?:of|in)\b",
            rf"\b(?:[Ff]rom|[Aa]fter) (?:\S+ of )?[A-Z]\w+'s (?:[\w-]+ ){{0,3}}{TEXTS}",
            r"\b(?:[Ff]rom|[Aa]fter) [A-Z]\w+'s \S+\.(?:sql|py|java|scala)\b",
            rf"\b[Ww]ritten (?:in \w+ )?after (?:the )?(?:{TEXTS}|SQL|Java)",
            r"# [D]ocstring of\b",
            r"\b[Tt]exts? of (?:its |their )?(?:others|authors)\b|\bquotes? (?:short )?passages\b",
        )
    )
)
"""How a file says whose text it has: with a licence, a version and a file, or the words for it."""

SECTION = re.compile(r"^(?:Args|Raises|Returns|Yields):$", re.MULTILINE)
_PLAIN = "known", "str", "list[Any]"
"""What types that are decoded may be: looked at before, or no structs."""


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
        source = self.root / "src"
        for path in self.below("src/**/*.py"):
            package, *inner = path.relative_to(source).with_suffix("").parts
            # Tests of the grid are beside those of sparkjet.
            module = Path(*(["grid"] if package == "sparkjet_grid" else []), *inner)
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
        for path, number, found in self.found(MACHINE_PATH):
            yield self.at(path, number, f"a path of one machine: {found}…")

    def own_words(self) -> Iterator[str]:
        """What has another origin is not written here: it is read from where it is installed, or is our own work."""
        for path, number, found in self.found(ORIGIN):
            if path.name != "LICENSE":
                yield self.at(path, number, f"names the origin of its text: {found.strip()}…; write your own")

    def found(self, pattern: re.Pattern[str]) -> Iterator[tuple[Path, int, str]]:
        """The first match of each line of text."""
        for path in self.files:
            content = path.read_bytes()
            if b"\0" in content:
                continue
            for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
                if match := pattern.search(line):
                    yield path, number, match.group()

    def one_reader(self) -> Iterator[str]:
        """`session.read` takes the names of files for patterns; what sparkjet has written is read as it is called."""
        for path in self.below("src/**/*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.Attribute(value=ast.Attribute(attr="read"), lineno=line):
                        yield self.at(path, line, "reads by patterns: use sparkjet.storage.file_reader")

    def one_log(self) -> Iterator[str]:
        """A line that a module logs by itself does not name the query that it is about."""
        for path in self.below("src/**/*.py"):
            if path.name in {"query_log.py", "log.py"}:
                continue
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.Call(
                        func=ast.Attribute(attr="getLogger"),
                        args=[ast.Constant(value="sparkjet" | "sparkjet.grid")],
                        lineno=line,
                    ):
                        yield self.at(path, line, "a log of its own: use sparkjet.query_log.logger, or the grid's")

    def known_types(self) -> Iterator[str]:
        """Threads that have msgspec look at one type for the first time at once can kill the process."""
        for path in self.below("src/**/*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.Call(func=ast.Attribute(value=value, attr="decode" | "Decoder" | "convert" as name)):
                        if "msgspec" not in ast.unparse(value) or path.name == "known_types.py":
                            continue
                        kinds = [each.value for each in node.keywords if each.arg == "type"]
                        kinds += node.args[1:2] if name == "convert" else node.args[:1] if name == "Decoder" else []
                        if any(ast.unparse(each).partition("(")[0] not in _PLAIN for each in kinds):
                            yield self.at(path, node.lineno, "decodes by a type: use sparkjet.known_types.known")

    def short_docstrings(self) -> Iterator[str]:
        """A private function is read with its code: a sentence says what its signature does not."""
        for path in self.below("src/**/*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                match node:
                    case ast.FunctionDef(name=name) if name.startswith("_") and not name.startswith("__"):
                        if section := SECTION.search(ast.get_docstring(node) or ""):
                            yield self.at(
                                path, node.lineno, f"{section.group()} of a private function: say it in a sentence"
                            )

    def broken(self) -> list[str]:
        """Everything that is wrong."""
        rules = (
            self.short_modules,
            self.tested_modules,
            self.no_machine_paths,
            self.own_words,
            self.one_reader,
            self.one_log,
            self.known_types,
            self.short_docstrings,
        )
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
