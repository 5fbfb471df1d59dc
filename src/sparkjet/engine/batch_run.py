"""A run over a batch DataFrame: all of its rows as one epoch, which closes every window, without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.engine.partial_aggregation import InputBatch, aggregate
from sparkjet.engine.results import Results
from sparkjet.engine.state import QueryState
from sparkjet.plan.outputs import Rows
from sparkjet.plan.partial_rows import ProgressDetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.plan import Plan


def rows_of(plan: Plan) -> DataFrame:
    """The rows that the one output of a plan gets if everything arrives at once; on the driver.

    They are computed here and now, and held by the executors as long as the DataFrame is.
    """
    (output,) = plan.of_aggregations
    state = QueryState.of(plan, plan.source.sparkSession.sparkContext.defaultParallelism)
    results, arrived = Results(plan, state), InputBatch(plan.source, plan)
    try:
        for aggregation in plan.roots:
            partial = aggregate(
                arrived.rows(aggregation),
                aggregation,
                state.aggregations[aggregation.name].operator,
                ProgressDetail.NOTHING,
                keep_rows=plan.delivers_late_rows(aggregation),
            )
            results.accept(aggregation.name, partial)
        results.close_all()
        rows = results.late_rows(output, None) if output.rows is Rows.LATE else results.rows(output)
        # Before the state is released: until then it would be computed again from there.
        return output.sample().limit(0) if rows is None else rows.localCheckpoint()
    finally:
        results.release()
        arrived.release()
        for each in state.aggregations.values():
            each.operator.restore([], None)
            each.operator.release()
