"""The check of the clicks job: the visits in the table against those computed from the clicks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import groupby

from rich.table import Table

from examples.clicks_feed import Visit


def read_back(psql: Callable[[str], list[list[str]]], name: str) -> list[Visit]:
    """The rows of the table, by visitor and time, as psql finds them."""
    seconds = (f"extract(epoch FROM {column})::bigint" for column in ("first_click", "last_click"))
    columns = ", ".join(("visitor", *seconds, "clicks", "exit"))
    query = f"SELECT {columns} FROM {name} ORDER BY visitor, first_click"  # noqa: S608 - a name of our own
    return [Visit(who, int(first), int(last), int(n), page) for who, first, last, n, page in psql(query)]


def differences(found: list[Visit], right: list[Visit]) -> list[str]:
    """What is wrong with the rows of the table, one line per kind."""
    extra, missing = Counter(found) - Counter(right), Counter(right) - Counter(found)
    kinds = {"should not be there, or not so often": extra, "are missing": missing}
    return [f"{n.total()} visits {what}, e.g. {next(iter(n))}" for what, n in kinds.items() if n]


def shown(rows: list[Visit]) -> Table:
    """The first visit of every user, as PostgreSQL has it."""
    table = Table(
        "visitor", "first click", "last click", "clicks", "exit", title="psql: the first visit of each visitor"
    )
    for who, ours in groupby(rows, key=lambda visit: visit.visitor):
        visit = next(ours)
        times = (f"{datetime.fromtimestamp(at, timezone.utc):%d %b %H:%M:%S}" for at in visit[1:3])
        table.add_row(who, *times, str(visit.clicks), visit.exit)
    return table
