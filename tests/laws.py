"""Settings of Hypothesis for laws that take seconds an example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings


def law(examples: int) -> settings:
    """So many examples, the same in every run, however long each takes."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def only_examples() -> settings:
    """The examples that are written down, none at random: those are for `make test-crash` and `make test-long`."""
    return settings(law(1), phases=[Phase.explicit])


RANDOM_RUNS = [pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
"""How many random runs each check of a whole operator or engine takes, which is seconds a run; CI has its examples."""


def random_runs(names: Iterable[str], crash: Iterable[str]) -> list[Any]:
    """Names and their number of random runs: one of some in `make test-crash`, many of all in `make test-long`."""
    (often,) = RANDOM_RUNS
    return [
        *(pytest.param(name, 1, marks=pytest.mark.crash) for name in crash),
        *(pytest.param(name, *often.values, marks=often.marks) for name in names),
    ]


QUICK_MODES = ("restarts",)
"""How `make test` feeds an operator; `make test-crash` also feeds it at once, and batch by batch without restarts."""
