"""The faults that a contract suite finds in an implementation that is wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def broken(suite: type, arguments: Callable[[], dict[str, Any]], only: str = "test_") -> set[str]:
    """Names of the suite's tests that fail.

    Args:
        suite: The suite.
        arguments: Makes what its tests get from fixtures: by name, again for every test.
        only: How the names of the tests to run begin.
    """
    found = set()
    for name in dir(suite):
        if not name.startswith(only):
            continue
        test = getattr(suite(), name)
        wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
        for given in _parameters(test):
            everything = {**arguments(), **given}
            try:
                test(**{each: everything[each] for each in wanted})
            except pytest.skip.Exception:
                pass
            # Any other error means that the suite failed for its own reason.
            except (AssertionError, pytest.fail.Exception):
                found.add(name)
    return found


def _parameters(test: Any) -> list[dict[str, Any]]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    return [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]
