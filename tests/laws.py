"""Settings of Hypothesis for laws that take seconds an example."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def law(examples: int) -> settings:
    """So many examples, the same in every run, however long each takes."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
