"""``diff``: what two queries have written, compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkjet.api.diff import Diff, diff
from sparkjet.catalyst.columns import quoted
from sparkjet.cli.arguments import printable
from sparkjet.cli.homes import session
from sparkjet.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IN_A_PIPE = 200
"""Letters of a line that nobody folds."""
_COUNTS = ("added", "removed", "changed", "same")


def show_differences(
    old: str, new: str, keys: Sequence[str], limit: int, settings: Sequence[str], *, as_json: bool
) -> int:
    """Print how many rows of each output differ, and the first of them; returns the exit status.

    Raises:
        AnalysisError: They cannot be compared.
        SourceError: They cannot be read.
    """
    session(settings).sparkContext.setLogLevel("ERROR")
    try:
        found = diff(old, new, keys=keys or None)
        rows = {name: _first(found.toDF(name), limit) for name in found.outputs}
    except PySparkException as error:
        raise SourceError(f"diff: Spark cannot compare them: {(str(error).splitlines() or [''])[0]}") from error
    if as_json:
        _print_json(found, rows)
    else:
        _print_tables(found, rows)
    return int(found.differs)


def _first(frame: DataFrame, limit: int) -> list[dict[str, Any]]:
    """The first rows, each value as JSON has it; in the order of their keys, so that two calls print the same."""
    if not limit:
        return []
    values = F.struct(*(F.col(quoted(name)) for name in frame.columns))
    lines = frame.select(F.to_json(values).alias("line")).orderBy("line").limit(limit).collect()
    return [json.loads(row.line) for row in lines]


def _print_json(found: Diff, rows: dict[str, list[dict[str, Any]]]) -> None:
    counts, columns = found.counts(), found.columns()
    outputs = {name: {"counts": counts[name], "columns": columns[name], "rows": rows[name]} for name in found.outputs}
    print(json.dumps({"differs": found.differs, "outputs": outputs}, indent=2))


def _print_tables(found: Diff, rows: dict[str, list[dict[str, Any]]]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_IN_A_PIPE)
    totals = Table("output", *_COUNTS, "columns")
    for name, counts in found.counts().items():
        told = [str(counts[each]) for each in _COUNTS]
        totals.add_row(Text(printable(name)), *told, Text(printable("; ".join(found.columns()[name]))))
    console.print(totals)
    for name, lines in rows.items():
        if lines:
            names = [each for each in found.toDF(name).columns if any(each in line for line in lines)]
            table = Table(title=Text(printable(name)))
            for each in names:
                table.add_column(Text(printable(each)))
            for line in lines:
                table.add_row(*(Text(printable(_shown(line.get(each)))) for each in names))
            console.print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and {*value} <= {"old", "new"}:
        old, new = (_text(value.get(side)) for side in ("old", "new"))
        return old if old == new else f"{old} → {new}"
    return _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
