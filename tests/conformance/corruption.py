"""Rows whose expectation is corrupted, one place at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.conformance import Case, read_cases

CASES = read_cases((Path(__file__).parent / "cases.md").read_text(encoding="utf-8"))

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?|(?:MIN|MAX)(?:[+-]?\d+)?")
_EXPECTED = {
    # The content of the parentheses after an arrow.
    "FR": (3, re.compile(r"->\(([^)]*)\)")),
    "SW": (3, re.compile(r"(.+)")),
    "SES": (3, re.compile(r"(.+)")),
    "E2E": (3, re.compile(r"(.+)")),
    "MAP": (2, re.compile(r"->\s*(.*?)(?=<br>|$)")),
    "COA": (2, re.compile(r"->\s*(.*?)(?=<br>|$)")),
}


def corruptions(case: Case) -> Iterator[Case]:
    """The same row with a different expectation; one row for every number, and every output that is not a number."""
    position, expected = _EXPECTED.get(case.group) or _policy_script(case)
    if case.group == "FR" and "prose" in case.cells[1]:
        expected = re.compile(r"\)=([^,;]+)")
    text = case.cells[position]
    for span in expected.finditer(text):
        start, end = span.span(1)
        for falsified in _falsified(span[1]):
            cells = list(case.cells)
            cells[position] = text[:start] + falsified + text[end:]
            yield replace(case, cells=tuple(cells))
    if case.group in {"SW", "SES", "E2E"} and "late=" not in text:
        yield replace(case, cells=(*case.cells[:3], f"{text} ; late=1", *case.cells[4:]))


def _policy_script(case: Case) -> tuple[int, re.Pattern[str]]:
    if "->" not in case.cells[2] + case.cells[3]:
        return 2, re.compile(r"=(\S+)")
    return (2 if "->" in case.cells[2] else 3), re.compile(r"->(\S+)")


def _falsified(output: str) -> Iterator[str]:
    for number in _NUMBER.finditer(output):
        value = "0" if number[0][0] == "M" else str(float(number[0]) + 1 if "." in number[0] else int(number[0]) + 1)
        yield output[: number.start()] + value + output[number.end() :]
    if output.strip() in {"-", "IDLE", "ERR"}:
        yield "5"
        yield "w(5)"
    if output.strip() == "-":
        yield "IDLE"
