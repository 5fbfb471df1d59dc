"""The table: what can be strange about a run, and which of it can be had at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations, product

from tests.environment.covering import Value, covering
from tests.environment.destinations import DESTINATIONS
from tests.environment.queries import QUERIES
from tests.environment.session_settings import ALL, GROUPS

USUAL = "usual"
"""The value of an axis on which nothing is strange."""

PATHS: Mapping[str, str] = {
    USUAL: "plain",
    "patterns": "[ab]*{b,c}?",
    "everything": "a \\%:,;=&#+$~'\"日é.",
    "encoded": ".a%20b",
    "long": "x=" + "a" * 198,
}
"""Names of the directory that home, output and late rows are in."""


@dataclass(frozen=True)
class Cell:
    """A query in an environment.

    Attributes:
        settings: The group of Spark's settings that the session has at other values.
        since: Whether it has them in both runs, only before or only after the restart.
        path: The directory's name.
        fault: What goes wrong in the second run.
        clock: What the clock does.
        server: What has changed at the server before the second run.
        query: The query.
        sink: Its sink.
        home: Where its snapshots are.
    """

    settings: str = USUAL
    since: str = USUAL
    path: str = USUAL
    fault: str = USUAL
    clock: str = USUAL
    server: str = USUAL
    query: str = "windows"
    sink: str = "files"
    home: str = "path"

    def __str__(self) -> str:
        return "-".join(value for value in astuple(self) if value != USUAL)


AXES: Mapping[str, Sequence[str]] = {
    "settings": (USUAL, ALL, *GROUPS),
    "since": (USUAL, "before", "after"),
    "path": tuple(PATHS),
    "fault": (
        *(USUAL, "home fills", "output fills", "no token", "no handles"),
        *("full home", "late rows fill", "full tmp", "dead letters fill", "token goes"),
    ),
    "clock": (USUAL, "day ahead", "hour ahead", "hour back"),
    "server": (
        *(USUAL, "sessions", "read only", "small records", "other topic"),
        *("impatient", "more partitions", "no slots"),
    ),
    "query": tuple(QUERIES),
    "sink": tuple(DESTINATIONS),
    "home": ("path", "grid"),
}
OFTEN: Mapping[str, int] = {"settings": 2, "path": 3, "fault": 5, "clock": 3, "server": 5, "query": 5}
"""How many values of an axis, those that break most, are in pairs."""
WORTH = 20
"""How many pairs that are in no cell before it a cell that CI runs has at least, unless a value is in none."""
ONLY: Mapping[Value, Mapping[str, Sequence[str]]] = {
    ("fault", "full home"): {"home": ["path"]},
    # What Spark needs of a home elsewhere is kept there.
    ("fault", "full tmp"): {"home": ["grid"]},
    ("fault", "home fills"): {"home": ["path"]},
    ("fault", "output fills"): {"sink": ["files"]},
    ("fault", "late rows fill"): {"query": ["windows"]},
    ("fault", "dead letters fill"): {"query": ["diverted"]},
    ("fault", "no token"): {"home": ["grid"]},
    ("fault", "token goes"): {"home": ["grid"]},
    ("server", "sessions"): {"sink": ["postgres"]},
    ("server", "read only"): {"sink": ["postgres"]},
    ("server", "impatient"): {"sink": ["postgres"]},
    ("server", "small records"): {"sink": ["kafka"]},
    ("server", "other topic"): {"sink": ["kafka"]},
    ("server", "more partitions"): {"sink": ["kafka"]},
    # Rows that replace others are not prepared.
    ("server", "no slots"): {"sink": ["postgres"], "query": [query for query in QUERIES if query != "rolling"]},
    # Windows, but for its dead letters.
    ("query", "diverted"): {
        **{axis: [USUAL] for axis in ("settings", "path", "clock", "server")},
        "fault": [USUAL, "dead letters fill"],
    },
    # Refused at once, as in Spark: api/test_output_modes.
    ("query", "rolling"): {"sink": [sink for sink in DESTINATIONS if sink != "files"]},
}
"""With what a value goes."""


def together(one: Value, other: Value) -> bool:
    """Whether two values can be had at once."""
    return all(b[1] in ONLY.get(a, {}).get(b[0], [b[1]]) for a, b in ((one, other), (other, one)))


def pairs() -> list[Cell]:
    """Few cells, with every pair of those values that can be had at once."""
    often = {axis: values[: OFTEN.get(axis, len(values))] for axis, values in AXES.items()}
    return [Cell(**row) for row in covering(often, together)]


def many() -> list[Cell]:
    """Of those the few that have most of the pairs, and every value that is in one."""
    found: list[Cell] = []
    seen: set[frozenset[Value]] = set()
    values: set[Value] = set()
    for cell in pairs():
        more = {frozenset(pair) for pair in combinations(asdict(cell).items(), 2)} - seen
        if len(more) >= WORTH or not values.issuperset(asdict(cell).items()):
            found.append(cell)
            values.update(asdict(cell).items())
        seen |= more
    return found


def alone() -> Iterator[Cell]:
    """Every strange value by itself, with every query, sink and home."""
    for query, sink, home in product(AXES["query"], AXES["sink"], AXES["home"]):
        usual = Cell(query=query, sink=sink, home=home)
        if not together(("query", query), ("sink", sink)):
            continue
        yield usual
        for axis in ("fault", "server", "path", "clock", "settings"):
            for value in AXES[axis][1:]:
                mine = {"query": query, "sink": sink, "home": home}
                if all(together((axis, value), each) for each in mine.items()):
                    for since in AXES["since"] if axis == "settings" else (USUAL,):
                        yield replace(usual, **{axis: value}, since=since)
