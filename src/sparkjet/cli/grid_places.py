"""What ``grid map`` and ``grid journal`` do alike: the grid that an argument names, and rows as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.grid.access import Access
    from sparkjet.grid.client import GridClient

Lines = Annotated[bool, typer.Option("--json", help="one object of JSON a line")]


def opened(where: str, access: Access, kind: str, *, of_all: bool) -> tuple[GridClient, str]:
    """The client of a grid, and the name of the map or journal in it.

    Args:
        where: As ``grid://host:port/name``.
        access: Where token and certificates are.
        kind: What is named.
        of_all: Whether only the grid is to be named.

    Raises:
        AnalysisError: It names no grid, or one that does not answer.
    """
    from sparkjet.grid.client_of import client_of  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.places import located  # noqa: PLC0415 - as above

    argument = "GRID" if of_all else kind.upper()
    parts, name = located(where, argument)
    grid = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme != "grid":
        raise AnalysisError(f'{argument}: "{where}" is not grid://host:port of members, as grid://10.0.0.1:5710 is.')
    if of_all and name:
        raise AnalysisError(f'GRID: "{where}" names a {kind}. Name only the grid: {grid}.')
    try:
        client = client_of(grid, access)
        # Asked now, so that what is wrong with the addresses is told of the argument that names them; and once, as
        # nobody at a terminal waits as long as a query does for members that may come back.
        client.status()
    except SparkjetError as error:
        # Of the files that give access their own options are named.
        told = str(error.args[0])
        raise AnalysisError(told if told.startswith("--") else f"{argument}: {told}") from error
    return client, name


@contextmanager
def shown() -> Iterator[None]:
    """Says of rows why they cannot be shown."""
    try:
        yield
    except OverflowError as error:
        message = "A row has a date or a time beyond the years 1 to 9999, the only ones of Python: read it with Spark."
        raise AnalysisError(message) from error


def show_rows(rows: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows, one a line."""
    from msgspec import json as encoding  # noqa: PLC0415 - JSON's own has no times

    for row in rows:
        if as_json:
            print(encoding.encode(row).decode())
        else:
            print("  ".join(f"{name}={value}" for name, value in row.items()))


def moment(micros: int | None) -> str | None:
    """A watermark as text; None before the first.

    >>> moment(1_500_000), moment(1 << 60)
    ('1970-01-01T00:00:01.500000+00:00', '1152921504606846976 µs since 1970')
    """
    if micros is None or micros == MIN:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest).isoformat()
    except (ValueError, OverflowError):
        # A row may say any year, and Python has those from 1 to 9999.
        return f"{micros} µs since 1970"
