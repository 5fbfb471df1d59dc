"""Parameters of a test most of which only `make test-crash` or `make test-long` runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

import pytest


def mostly_crash(
    values: Iterable[Any],
    quick: Container[Any],
    name: Callable[[Any], str] | None = None,
    crash: Container[Any] | None = None,
) -> list[Any]:
    """One parameter for each value, or several for a tuple; `make test` runs those that are quick.

    Args:
        values: All values.
        quick: Those for `make test`.
        name: Says what pytest calls a value.
        crash: Those for `make test-crash`; the others are for `make test-long`. Without it, none is.
    """
    found = []
    for value in values:
        together = value if isinstance(value, tuple) else (value,)
        often = crash is None or value in crash
        marks = () if value in quick else pytest.mark.crash if often else pytest.mark.long
        found.append(pytest.param(*together, marks=marks, id=None if name is None else name(value)))
    return found


def mostly_long(values: Mapping[str, Any], often: Collection[str]) -> list[Any]:
    """One parameter for each value; those that are not needed often, as others show what they show, are long.

    Args:
        values: By what pytest calls them.
        often: Names of those that CI runs too.
    """
    unknown = set(often).difference(values)
    assert not unknown, f"there are no parameters {unknown}"
    return [
        pytest.param(value, marks=() if name in often else pytest.mark.long, id=name) for name, value in values.items()
    ]
