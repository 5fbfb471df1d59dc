"""Alignment needs partitions that are substreams, and watermarks that only rows move: checked before the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.formats import SOURCES
from sparkjet.errors import AnalysisError
from sparkjet.plan.spark_sources import options_given
from sparkjet.sources.alignment import MAX_DRIFT
from sparkjet.time import uses_clock

if TYPE_CHECKING:
    from sparkjet.plan.inputs import Input
    from sparkjet.plan.plan import Plan

ALIGNING = tuple(sorted(name for name, source in SOURCES.items() if MAX_DRIFT in source.options))
"""The sources that take the option ``maxWatermarkDrift``."""


def check_aligned(plan: Plan) -> None:
    """Refuse ``maxWatermarkDrift`` where partitions cannot be held back, or rows would be late because they were.

    Raises:
        AnalysisError: A source of Spark's has the option, or the query does not follow event time by partition.
    """
    given = options_given(plan.source, MAX_DRIFT.name)
    if all(value is None for _, value in given):
        return
    for name, value in given:
        if value is not None and name not in ALIGNING:
            message = (
                f"option: {MAX_DRIFT.name}={value!r}: the source {name!r} does not know it, and would read all "
                f"partitions at once. It is for {', '.join(ALIGNING)}. Read with one of these, or leave the option out."
            )
            raise AnalysisError(message)
    if len(given) not in {1, sum(each.sources for each in plan.inputs)} or not plan.inputs:
        message = (
            f"option: {MAX_DRIFT.name}: each source of the query needs one withWatermark(…), which says how far its "
            "partitions have come. Call it on each stream, or leave the option out."
        )
        raise AnalysisError(message)
    position = 0
    for each in plan.inputs:
        own = given if len(given) == 1 else given[position : position + each.sources]
        position += each.sources
        for name, value in own:
            if value is not None:
                _check(each, name)


def _check(given: Input, name: str) -> None:
    if not given.watermark.partitions and given.sources > 1:
        # Their columns are kept, and yet it is unknown which partition is whose.
        message = (
            f"option: {MAX_DRIFT.name}: withWatermark(…) covers {given.sources} sources, whose partitions are not "
            "substreams. Call it on the stream of each, and union those: sj.stream(…).withWatermark(…).union(…)."
        )
        raise AnalysisError(message)
    if not given.watermark.partitions:
        known = SOURCES[name].known
        columns = " and ".join(() if known is None else known.partitions)
        message = (
            f"option: {MAX_DRIFT.name}: the substreams of this query are not the partitions of {name}. Keep its "
            f"columns {columns}, and leave by=… out of withWatermark(…)."
        )
        raise AnalysisError(message)
    if uses_clock(given.watermark.policy):
        message = (
            f"option: {MAX_DRIFT.name}: the clock moves the watermarks of this policy, so rows of partitions that are "
            "held back would be late. Use a policy that only rows move, such as limiting_lag(…), or leave the option "
            "out."
        )
        raise AnalysisError(message)
