"""Says how the minutes of CI compare with those that tests/minutes.md allows each capability.

Usage: ``python scripts/minutes.py DIRECTORY SECONDS``: the directory with the JUnit files of the steps, and the seconds
of the whole run. The minutes of a step are shared among its tests in proportion to their durations, as several run
at once; what is not in any step is set-up and checks. Machines are noisy: the exit status is always 0.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "minutes.md"
ROW = re.compile(r"^\| ([^|]+?) \| ([\d.]+) \| ([^|]*?) ?\|$", re.MULTILINE)
LIMIT = 40
"""Minutes of a whole run."""
REST = "set-up and checks"
"""The row of what no step of tests accounts for."""


@dataclass(frozen=True)
class Row:
    """Minutes that a capability may take.

    Attributes:
        name: The capability.
        minutes: Of CI on two cores.
        paths: Its test files and folders; the longest that matches a test decides. ``docs`` is its own step.
    """

    name: str
    minutes: float
    paths: tuple[str, ...] = ()


def rows(table: Path = TABLE) -> list[Row]:
    """The table, in its order."""
    found = ROW.findall(table.read_text(encoding="utf-8"))
    return [Row(name, float(minutes), tuple(re.findall(r"`([^`]+)`", paths))) for name, minutes, paths in found]


def row_of(path: str, table: list[Row]) -> str:
    """The capability of a test file; what nothing matches is named as such, so that it is seen."""
    matching = [
        (len(start), row.name) for row in table for start in row.paths if path == start or path.startswith(f"{start}/")
    ]
    return max(matching)[1] if matching else f"not in the table: {path}"


def file_of(classname: str, root: Path = ROOT) -> str:
    """The file of a test, of which JUnit has the dotted name, followed by that of its class; or a page."""
    parts = classname.split(".")
    if parts[-1] == "md":
        return f"{'/'.join(parts[:-1])}.md"
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end])
        if (root / f"{path}.py").is_file():
            return f"{path}.py"
    return "/".join(parts)


def measured(junit: Path) -> Iterator[tuple[str, float]]:
    """The tests of a step: the file of each, and its share of the step's minutes."""
    (suite,) = ET.parse(junit).getroot().iter("testsuite")  # noqa: S314 - pytest's own file
    cases = [(case.get("classname", ""), float(case.get("time", 0))) for case in suite.iter("testcase")]
    whole = sum(seconds for _, seconds in cases) or 1.0
    for classname, seconds in cases:
        path = "docs" if junit.stem == "docs" else file_of(classname)
        yield path, float(suite.get("time", 0)) / 60 * seconds / whole


def report(directory: Path, seconds: float, table: list[Row]) -> list[str]:
    """The lines to print: the sum, the rows that were exceeded, and the files that took a minute or more."""
    files: dict[str, float] = defaultdict(float)
    for junit in sorted(directory.glob("*.xml")):
        for path, minutes in measured(junit):
            files[path] += minutes
    taken: dict[str, float] = defaultdict(float)
    for path, minutes in files.items():
        taken[row_of(path, table)] += minutes
    taken[REST] = seconds / 60 - sum(files.values())
    allowed = {row.name: row.minutes for row in table}
    lines = [f"CI took {seconds / 60:.1f} minutes; {LIMIT} is the limit, {sum(allowed.values()):.1f} are given away."]
    longest = sorted(files.items(), key=lambda file: -file[1])
    lines += [f"{minutes:5.1f} minutes  {path}" for path, minutes in longest if minutes >= 1]
    for name, minutes in sorted(taken.items()):
        most = allowed.get(name, 0)
        lines.append(f"{minutes:5.1f} of {most:4.1f}{' EXCEEDED' if minutes > most else ''}  {name}")
    return lines


if __name__ == "__main__":
    for line in report(Path(sys.argv[1]), float(sys.argv[2]), rows()):
        print(line)
