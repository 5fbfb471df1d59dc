"""The packages that a query's Python needs on the executors, where ``--py-files`` cannot bring them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.plan.aggregation import Aggregation
from sparkjet.plan.spark_sources import packages_of_sources
from sparkjet.plan.stateful_function import StatefulFunction
from sparkjet.sinks.protocol import NeedsPackages

if TYPE_CHECKING:
    from sparkjet.plan.plan import Plan

_ARROW = {"pyarrow": "pyarrow"}


def worker_packages(plan: Plan) -> dict[str, str]:
    """The packages of sources, aggregates, functions and sinks: the name to install, by the name to import.

    Sinks must have been checked, as some decide only then who writes.
    """
    needed = packages_of_sources(plan.source)
    for planned in plan.stages:
        stage = planned.stage
        if isinstance(stage, StatefulFunction):
            needed |= _ARROW
        if isinstance(stage, Aggregation):
            for aggregate in stage.aggregates:
                needed |= aggregate.operation.packages
    for output in plan.outputs:
        if isinstance(output.sink, NeedsPackages):
            needed |= output.sink.packages
    return needed
