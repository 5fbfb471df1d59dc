"""Small tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A title and a table, as HTML; every text is escaped."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    heads = line(head, "th") if head else ""
    return f"<b>{escape(title)}</b><table>{heads}{''.join(line(row, 'td') for row in rows)}</table>"
