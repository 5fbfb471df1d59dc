"""``state``: the operators of a query, and how many rows its user would see of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.cli.arguments import show
from sparkjet.cli.homes import home_at, session
from sparkjet.engine.progress import open_windows
from sparkjet.engine.state_reader import StateReader


def list_operators(location: str, pin: str | None, settings: Sequence[str], *, as_json: bool) -> None:
    """Print each operator of a query: its kind, its columns, its rows, and what is stored of it."""
    reader = StateReader(home_at(location, "home", settings), pin)
    told = [_told(reader, name, kind, settings) for name, kind in reader.operators.items()]
    lines = map(_line, told) if told else [f"epoch {reader.record.epoch}: the query has no state"]
    show(lines, told, as_json=as_json)


def _told(reader: StateReader, name: str, kind: str, settings: Sequence[str]) -> dict[str, Any]:
    rows = reader.rows(session(settings), name)
    count = rows.count()
    # Of the record that was read: the query may have replaced the one before.
    saved = reader.record.stages[name]
    return {
        "operator": name,
        "kind": kind,
        "epoch": reader.record.epoch,
        "columns": rows.columns,
        "rows": count,
        "openWindows": open_windows([saved]),
        "storedRows": sum(delta.rows for delta in saved.deltas),
    }


def _line(told: dict[str, Any]) -> str:
    windows = "" if told["openWindows"] is None else f" of {told['openWindows']} open windows"
    return (
        f"{told['operator']}: {told['kind']} ({', '.join(told['columns'])}): {told['rows']} rows{windows}, "
        f"{told['storedRows']} stored, epoch {told['epoch']}"
    )
