"""Rows of windows that are still open: each as the window is after some epoch, and every change of it once or more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tests.differential.oracle import Expected
from tests.differential.texts import Row, plain

Changes = dict[Row, list[Row]]
"""By the columns that name a window of a key: its other columns, as they change."""


def differences(epochs: Sequence[Sequence[Any]], wanted: Expected, keys: int, *, marked: bool) -> list[str]:
    """The differences from the expected windows, as lines.

    Args:
        epochs: What was emitted, as texts.
        wanted: All windows after each epoch.
        keys: How many columns name a window of a key.
        marked: Whether a last column says which rows are early.
    """
    lines: list[str] = []
    found: Changes = {}
    final: dict[Row, Row] = {}
    for number, rows in enumerate(epochs):
        seen = set()
        for values in rows:
            row = plain(values[:-1] if marked else values, wanted.schema)
            name, rest = row[:keys], row[keys:]
            lines += [f"  epoch {number} has {row} twice"] if name in seen else []
            lines += [f"  epoch {number} has {row} after its last one"] if name in final else []
            seen.add(name)
            found.setdefault(name, []).append(rest)
            if marked and values[-1] == "false":
                final[name] = rest
    last = {row[:keys]: row[keys:] for row in wanted.epochs[-1]}
    if marked:
        lines += _apart(final, last, "as final")
    lines += _apart(_changes(found), _changes(_after_each(wanted, keys)), "one after the other")
    return lines


def _after_each(wanted: Expected, keys: int) -> Changes:
    found: Changes = {}
    for rows in wanted.epochs:
        for row in rows:
            found.setdefault(row[:keys], []).append(row[keys:])
    return found


def _changes(found: Changes) -> Changes:
    return {name: [each for each, _ in groupby(rows)] for name, rows in found.items()}


def _apart(found: Mapping[Row, object], wanted: Mapping[Row, object], how: str) -> Iterable[str]:
    for name in {**found, **wanted}:
        if found.get(name) != wanted.get(name):
            yield f"  {name} {how}: sparkjet {found.get(name)}, Spark {wanted.get(name)}"
