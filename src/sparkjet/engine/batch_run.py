"""A run over a batch DataFrame: all of its rows as one epoch, which closes every window, without a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.engine.dead_letters import DeadLetters
from sparkjet.engine.expectations import Expectations
from sparkjet.engine.input_batch import InputBatch
from sparkjet.engine.results import Results
from sparkjet.engine.state import QueryState
from sparkjet.executors import state_partitions
from sparkjet.plan.outputs import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.plan import Plan


def dead_letters_of(plan: Plan) -> DataFrame:
    """The dead letters of a plan's only such output if everything arrives at once; on the driver."""
    (output,) = plan.of_failures
    arrived = InputBatch(plan.source, plan)
    try:
        rows = DeadLetters(output, arrived).rows(0)
        return output.sample().limit(0) if rows is None else rows.localCheckpoint()
    finally:
        arrived.release()


def check_expectations(plan: Plan) -> None:
    """Check all rows of a plan without stages against its expectations, if everything arrives at once."""
    arrived = InputBatch(plan.source, plan)
    try:
        Expectations(plan).of_input(arrived)
    finally:
        arrived.release()


def rows_of(plan: Plan) -> DataFrame:
    """The rows that a plan's only output gets if everything arrives at once; on the driver.

    They are computed immediately, and held by the executors as long as the DataFrame is.
    """
    (output,) = plan.of_stages
    state = QueryState.of(plan, state_partitions(plan.source.sparkSession))
    # If several sources in one plan were combined with results from them, two columns would have the same identity.
    batch = plan.source if len(plan.sources.all) == 1 else plan.source.localCheckpoint()
    expectations = Expectations(plan)
    results, arrived = Results(plan, state, expectations), InputBatch(batch, plan)
    for table in plan.tables:
        table.acquire()
    try:
        expectations.of_input(arrived)
        for name, side, arrival in arrived.arrivals(state.stages):
            results.accept(name, side, arrival)
        results.close_all()
        rows = results.late_rows(output) if output.rows is Rows.LATE else results.rows(output)
        # Before the state is released: after that, it would be computed again from there.
        return output.sample().limit(0) if rows is None else rows.localCheckpoint()
    finally:
        results.release()
        arrived.release()
        for each in state.stages.values():
            each.operator.restore([], None)
            each.operator.release()
        for table in plan.tables:
            table.release()
