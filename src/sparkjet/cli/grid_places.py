"""Common code of ``grid map`` and ``grid journal``: the grid that an argument names, and rows as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.cli.arguments import printable
from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.time import MIN

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet_grid.access import Access
    from sparkjet_grid.client import GridClient

_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON allows unescaped, and terminals obey."""
Lines = Annotated[bool, typer.Option("--json", help="one object of JSON a line")]


def opened(where: str, access: Access, kind: str, *, of_all: bool) -> tuple[GridClient, str]:
    """The client of a grid, and the name of the map or journal in it.

    Args:
        where: Its location, as ``grid://host:port/name``.
        access: Where to find token and certificates.
        kind: The kind of thing that is named.
        of_all: Whether only the grid is to be named.

    Raises:
        AnalysisError: No grid is named, or one that does not answer.
    """
    from sparkjet_grid.embedded import client_of  # noqa: PLC0415 - the extra is optional
    from sparkjet_grid.places import split_uri  # noqa: PLC0415 - as above

    scheme, members, name = split_uri(where)
    grid = f"grid://{members}"
    argument = "GRID" if of_all else kind.upper()
    if scheme != "grid":
        raise AnalysisError(f'{argument}: "{where}" is not grid://host:port of members, as grid://10.0.0.1:5710 is.')
    if of_all and name:
        raise AnalysisError(f'GRID: "{where}" names a {kind}. Name only the grid: {grid}.')
    try:
        client = client_of(grid, access)
        # Asked now, so that errors in the addresses are attributed to the argument that names them; and once, as nobody
        # at a terminal waits as long as a query does for members that may come back.
        client.status()
    except SparkjetError as error:
        # For access files, their own options are named.
        told = str(error.args[0])
        raise AnalysisError(told if told.startswith("--") else f"{argument}: {told}") from error
    return client, name


def check_limit(limit: int | None) -> None:
    """Refuse an option ``--limit`` that is not a number of rows."""
    if limit is not None and limit < 0:
        raise AnalysisError(f"--limit: {limit} is not a number of rows. Give 0 or more, or leave it out for all.")


def listed(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch."""
    rows: list[dict[str, Any]]
    try:
        rows = batch.to_pylist()
    except (OverflowError, UnicodeDecodeError):
        # A year is out of Python's range, or a text is not UTF-8, and those who look at rows may be looking for just
        # that.
        try:
            rows = _as_stored(batch, is_text=True).to_pylist()
        except UnicodeDecodeError:
            rows = _as_stored(batch, is_text=False).to_pylist()
    return rows


def _as_stored(batch: pa.RecordBatch, *, is_text: bool) -> pa.Table:
    """The rows with times as Arrow's text, and texts as bytes unless they are text."""
    import pyarrow as pa  # noqa: PLC0415 - the extra is optional

    def told(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return pa.string()
        if pa.types.is_string(kind) and not is_text:
            return pa.binary()
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(told(field.type)).with_nullable(True) for field in kind])
        if pa.types.is_list(kind):
            return pa.list_(told(kind.value_type))
        return pa.map_(told(kind.key_type), told(kind.item_type)) if pa.types.is_map(kind) else kind

    schema = pa.schema([(field.name, told(field.type)) for field in batch.schema])
    return pa.Table.from_batches([batch]).cast(schema)


def show_rows(rows: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows, one per line."""
    from msgspec import json as encoding  # noqa: PLC0415 - JSON's own has no times

    for row in rows:
        if as_json:
            print(encoding.encode(row).decode().translate(_ESCAPES))
        else:
            print(printable("  ".join(f"{name}={value}" for name, value in row.items())))


def moment(micros: int | None) -> str | None:
    """A watermark as text; None before the first.

    >>> moment(1_500_000), moment(1 << 60)
    ('1970-01-01T00:00:01.500000+00:00', '1152921504606846976 µs')
    """
    if micros is None or micros == MIN:
        return None
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        # As when milliseconds were read as seconds: the year is out of Python's range.
        return f"{micros} µs"
