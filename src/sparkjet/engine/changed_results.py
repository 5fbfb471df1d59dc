"""Changed results: whether the destinations of a query's results accept a change, before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.engine.changed_query import Change, Consequence, described
from sparkjet.engine.comparing import compared
from sparkjet.errors import AnalysisError
from sparkjet.sinks.protocol import Requiring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.engine.changed_query import Upgrade
    from sparkjet.plan.outputs import Output
    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Record


def nulls_refused(plan: Plan, upgrade: Upgrade, lacking: Mapping[str, tuple[int, ...]]) -> list[Change]:
    """Let the sinks check results that may now have nulls; returns the columns that will have nulls, but may not.

    Args:
        plan: The query, including what its aggregates lack.
        upgrade: What has changed.
        lacking: The aggregates that lack rows, by stage.

    Raises:
        AnalysisError: A sink cannot write them.
    """
    found = []
    for output in plan.of_stages:
        if output.reads not in lacking:
            continue
        # Once more: without a change, values computed from them cannot be null, and nobody would look for nulls.
        output.check()
        changed = upgrade.stages.get(output.reads)
        if changed is None or not isinstance(output.sink, Requiring):
            continue
        added = [number for number in changed.lacking if changed.aggregates[number][1] is None]
        for name in output.computed_from(added):
            if name in output.sink.required:
                note = "let it be null there, give it a value with coalesce after agg(…), or write to another table"
                what = f"column {name} of {output.format}"
                found.append(Change(output.name, what, "NOT NULL", "null before the cut", Consequence.REFUSED, note))
    return found


def check(output: Output, plan: Plan, record: Record | None) -> None:
    """Let an output's sink check the rows; if it refuses those of a changed query, report the changes.

    Raises:
        AnalysisError: The sink refuses the rows.
    """
    try:
        output.check()
    except AnalysisError as error:
        changes = () if record is None else compared(plan, record).changes
        if not changes:
            raise
        report = f"The query has changed since its last run, and nothing has been done:\n{described(changes)}"
        raise AnalysisError(f"{error.args[0]}\n{report}") from error
