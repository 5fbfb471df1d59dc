"""Settings of Hypothesis for laws that take seconds an example."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings


def law(examples: int) -> settings:
    """The given number of examples, the same in every run, however long each takes."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def only_examples() -> settings:
    """The examples that are written down, none at random: those are for `make test-long`."""
    return settings(law(1), phases=[Phase.explicit])


RANDOM_RUNS = [pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
"""How many random runs each check of a whole operator or engine takes, which is seconds a run; CI has its examples."""


QUICK_MODES = ("restarts",)
"""How CI feeds an operator; `make test-long` also feeds it at once, and batch by batch without restarts."""
