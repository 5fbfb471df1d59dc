"""Cases: the rows of a Markdown file's tables, and the groups that they belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.conformance.verdicts import NotationError

_GROUP = re.compile(r"##\s+([A-Za-z0-9]+)\.")
_HEADING = re.compile(r"#{1,2}\s")
_RULE = re.compile(r"\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?\s*)?")
_BORDER = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Case:
    """One row: its group, its cells (without backquotes), and its line number."""

    group: str
    cells: tuple[str, ...]
    line: int

    @property
    def id(self) -> str:
        """The name of the case, or its line if it has none."""
        return self.cells[0] if self.cells and self.cells[0] else f"line-{self.line}"

    def cell(self, position: int, name: str) -> str:
        """A cell of the row.

        Raises:
            NotationError: The row is too short or the cell empty.
        """
        if position >= len(self.cells) or not self.cells[position]:
            raise NotationError(f"line {self.line} has no cell for {name}")
        return self.cells[position]

    @property
    def setup(self) -> str:
        """The second cell without its comment, which starts at the first semicolon."""
        setup = self.cell(1, "the setup").split(";")[0].strip()
        if not setup:
            raise NotationError(f"line {self.line} has only a comment for a setup")
        return setup


def read_cases(text: str) -> list[Case]:
    r"""All table rows under a heading ``## XX.``, in order, without the tables' headers.

    >>> [case.id for case in read_cases("## FR. x\n| id | setup |\n|---|---|\n| F1 | frame 4 |\n## Other\n| a | b |\n")]
    ['F1']
    """
    cases = []
    group: str | None = None
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        if _HEADING.match(line):
            match = _GROUP.match(line)
            group = match[1].upper() if match else None
        elif group and line.startswith("|") and not _RULE.fullmatch(line):
            below = lines[number] if number < len(lines) else ""
            if not _RULE.fullmatch(below):
                cases.append(Case(group, _cells(line), number))
    return cases


def _cells(line: str) -> tuple[str, ...]:
    inner = line.removeprefix("|")
    cells = [cell.replace("`", "").replace("\\|", "|").strip() for cell in _BORDER.split(inner)]
    if inner.endswith("|") and not cells[-1]:
        cells.pop()
    return tuple(cells)
