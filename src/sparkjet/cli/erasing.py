"""``erase``: deletes what a stopped query keeps of a key, and prints what was found where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkjet.api.erase import erased
from sparkjet.catalyst.sought_rows import Sought
from sparkjet.cli.arguments import printable, show
from sparkjet.cli.homes import session
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.api.erase import Erased
    from sparkjet.engine.erasing import ErasedPlace

_IN_A_PIPE = 160


def erase_key(
    home: str,
    key: Sequence[str],
    rows: Sequence[str],
    copies: Sequence[str],
    settings: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Erase the rows of a key, and print what was found."""
    values: dict[str, str] = {}
    for each in key:
        name, found, value = each.partition("=")
        if not found or not name or name in values:
            raise AnalysisError(f'--key: "{each}" is not COLUMN=VALUE, once for each column, as in --key user=42.')
        values[name] = value
    told = erased(home, Sought(values, is_text=True), rows, copies, dry_run=dry_run, session=session(settings))
    if as_json:
        show((), {**msgspec.to_builtins(told), "rows": told.rows}, as_json=True)
    else:
        _print(told)


def _print(told: Erased) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_IN_A_PIPE)
    table = Table("place", "operator", "rows", "")
    for each in told.places:
        table.add_row(*(Text(printable(text)) for text in _cells(each)))
    console.print(table)
    what = "there are" if told.dry_run else "erased:"
    console.print(Text(f"{what} {told.rows} stored rows"))
    for left in told.left:
        console.print(Text(printable(f"not erased: {left}")))


def _cells(each: ErasedPlace) -> tuple[Any, ...]:
    operator = f"{each.operator} ({each.kind})" if each.operator else each.kind
    return each.place, operator, "-" if each.rows is None else str(each.rows), each.why
