"""Parameters of a test most of which only `make test-crash` runs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest


def mostly_crash(values: Iterable[Any], quick: Container[Any], name: Callable[[Any], str] | None = None) -> list[Any]:
    """One parameter for each value, or several for a tuple; `make test` runs those that are quick.

    Args:
        values: All values.
        quick: Those for `make test`.
        name: Says what pytest calls a value.
    """
    found = []
    for value in values:
        together = value if isinstance(value, tuple) else (value,)
        marks = () if value in quick else pytest.mark.crash
        found.append(pytest.param(*together, marks=marks, id=None if name is None else name(value)))
    return found
