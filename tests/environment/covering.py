"""Few rows in which every pair of values of two axes occurs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product

Value = tuple[str, str]
"""An axis, and one of its values."""
Together = Callable[[Value, Value], bool]
"""Whether two values of different axes can be had at once."""


def covering(axes: Mapping[str, Sequence[str]], together: Together) -> list[dict[str, str]]:
    """Rows with a value for each axis; every pair that some row can have is in one of them.

    Greedy, and the same for the same arguments: a row begins with the first pair that is missing, and each axis takes
    the value that adds most pairs.
    """
    missing = dict.fromkeys(
        pair
        for one, other in combinations(axes, 2)
        for pair in product(((one, value) for value in axes[one]), ((other, value) for value in axes[other]))
        if together(*pair)
    )
    order = {axis: number for number, axis in enumerate(axes)}
    rows: list[dict[str, str]] = []
    while missing:
        pair = next(iter(missing))
        row = _completed(dict(pair), axes, together, missing.keys(), order)
        if row is None:
            # A third axis has no value that goes with both.
            del missing[pair]
            continue
        rows.append({axis: row[axis] for axis in axes})
        for each in _pairs(row.items(), order):
            missing.pop(each, None)
    return rows


def _pairs(values: Iterable[Value], order: Mapping[str, int]) -> Iterable[tuple[Value, Value]]:
    return combinations(sorted(values, key=lambda value: order[value[0]]), 2)


def _completed(
    row: dict[str, str],
    axes: Mapping[str, Sequence[str]],
    together: Together,
    missing: Iterable[tuple[Value, Value]],
    order: Mapping[str, int],
) -> dict[str, str] | None:
    """A whole row with what is chosen, None if there is none."""
    choices = {
        axis: [value for value in values if all(_fit((axis, value), chosen, together, order) for chosen in row.items())]
        for axis, values in axes.items()
        if axis not in row
    }
    if not choices:
        return row
    # First where little can be chosen: what is chosen elsewhere must not leave nothing.
    axis = min(choices, key=lambda name: (len(choices[name]), order[name]))

    def added(value: str) -> int:
        return sum(_ordered((axis, value), chosen, order) in missing for chosen in row.items())

    for value in sorted(choices[axis], key=added, reverse=True):
        found = _completed({**row, axis: value}, axes, together, missing, order)
        if found is not None:
            return found
    return None


def _fit(one: Value, other: Value, together: Together, order: Mapping[str, int]) -> bool:
    return together(*_ordered(one, other, order))


def _ordered(one: Value, other: Value, order: Mapping[str, int]) -> tuple[Value, Value]:
    return (one, other) if order[one[0]] < order[other[0]] else (other, one)
