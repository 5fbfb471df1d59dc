"""The plan of a query: one input DataFrame, the aggregations over it, and the outputs of those aggregations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import IS_EARLY
from sparkjet.errors import AnalysisError
from sparkjet.plan.inputs import several_substreams, tracker_of
from sparkjet.plan.partial_rows import ProgressDetail
from sparkjet.plan.windowed_aggregation import WindowedAggregation

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import DataFrame

    from sparkjet.plan.inputs import Input
    from sparkjet.plan.transformations import Transformations
    from sparkjet.sinks.protocol import Sink
    from sparkjet.snapshots.record import Fingerprint
    from sparkjet.time import InputTracker


class Rows(Enum):
    """Which rows of an aggregation an output gets."""

    RESULTS = "results"
    LATE = "late"


@dataclass(frozen=True)
class Output:
    """Rows of an aggregation on their way to a sink.

    Attributes:
        name: What the record calls it; the same in every run.
        aggregation: The aggregation.
        rows: Which of its rows.
        shape: A DataFrame with the schema of these rows, for analysis only.
        finishing: The user's transformations of them.
        sink: Where they go.
        format: What the user calls the sink.
        early_period: How often early rows come, in microseconds; 0 in update mode without a period (every epoch),
            None where only final rows are wanted.
        marks_early: Whether rows have a column ``is_early``, and final rows come whether or not they have changed.
    """

    name: str
    aggregation: WindowedAggregation
    rows: Rows
    shape: DataFrame
    finishing: Callable[[DataFrame], DataFrame]
    sink: Sink
    format: str
    early_period: int | None = None
    marks_early: bool = False

    def check(self) -> None:
        """Have the sink look at the rows and at where they go; nothing is changed.

        Raises:
            AnalysisError: The rows cannot be written there, or it cannot be reached.
        """
        self.sink.check(self.finished(self.shape).schema)

    def finished(self, rows: DataFrame, *, early: bool = False) -> DataFrame:
        """The rows as the sink gets them."""
        finished = self.finishing(rows)
        return finished.withColumn(IS_EARLY, F.lit(early)) if self.marks_early else finished


@dataclass(frozen=True, eq=False)
class PlannedAggregation(WindowedAggregation):
    """An aggregation of a query.

    Attributes:
        name: What the record calls it; the same in every run.
        parent: The aggregation of the query whose results are aggregated here, None at the root.
    """

    parent: PlannedAggregation | None
    name: str


@dataclass(frozen=True)
class PlannedOutput(Output):
    """An output of a query, with the aggregation of the query that it reads."""

    aggregation: PlannedAggregation


@dataclass(frozen=True)
class Plan:
    """What a query computes; pure description, made by :func:`plan_of`.

    Attributes:
        source: The streaming DataFrame that Spark runs, with the hidden columns.
        persisted: Whether a batch of it is persisted in memory, as it is read more than once.
        shared: Number of transformations that all its aggregations begin with; they come before it is persisted.
        inputs: The inputs united in it.
        aggregations: Each after its parent.
        outputs: In the order in which they are written.
    """

    source: DataFrame
    persisted: bool
    shared: int
    inputs: tuple[Input, ...]
    aggregations: tuple[PlannedAggregation, ...]
    outputs: tuple[PlannedOutput, ...]

    @property
    def roots(self) -> list[PlannedAggregation]:
        """The aggregations that aggregate the input."""
        return [aggregation for aggregation in self.aggregations if aggregation.parent is None]

    @property
    def progress_detail(self) -> ProgressDetail:
        """What partial aggregation has to find out about event time."""
        if self.persisted:
            return ProgressDetail.NOTHING
        return ProgressDetail.EACH if several_substreams(self.inputs) else ProgressDetail.ALL

    @property
    def uses_clock(self) -> bool:
        """Whether an epoch can be due while nothing arrives."""
        return any(each.watermark.uses_clock for each in self.inputs) or any(
            bool(output.early_period) for output in self.outputs
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """What must not change between two runs, because the saved state would no longer fit."""
        described: Fingerprint = {
            "inputs": {each.prefix: [each.watermark.event_time, *each.watermark.by] for each in self.inputs}
        }
        for aggregation in self.aggregations:
            reads = None if aggregation.parent is None else aggregation.parent.name
            described[aggregation.name] = {"reads": reads, **aggregation.fingerprint}
        return described

    def consumers(self, aggregation: PlannedAggregation) -> int:
        """How many outputs and aggregations read an aggregation's final rows."""
        readers = [output.aggregation.name for output in self.outputs if output.rows is Rows.RESULTS]
        readers += [other.parent.name for other in self.aggregations if other.parent is not None]
        return readers.count(aggregation.name)

    def delivers_late_rows(self, aggregation: PlannedAggregation) -> bool:
        """Whether an output takes the rows that an aggregation drops."""
        return aggregation.name in {output.aggregation.name for output in self.outputs if output.rows is Rows.LATE}

    def tracker(self) -> InputTracker:
        """A new watermark tracker."""
        return tracker_of(self.inputs, [aggregation.grid for aggregation in self.aggregations])


def plan_of(outputs: Sequence[Output]) -> Plan:
    """The plan behind some outputs.

    Raises:
        AnalysisError: They do not all come from one ``withWatermark`` or ``union``.
    """
    planned: dict[WindowedAggregation, PlannedAggregation] = {}
    for output in outputs:
        for aggregation in output.aggregation.lineage:
            if aggregation not in planned:
                parent = None if aggregation.parent is None else planned[aggregation.parent]
                # Every record holds these names: others would need an upgrade (:mod:`sparkjet.snapshots.upgrades`).
                name = f"aggregation{len(planned)}"
                planned[aggregation] = PlannedAggregation(**_fields(aggregation, parent=parent), name=name)
    chains = [aggregation.transformations for aggregation in planned.values() if aggregation.parent is None]
    if any(chain.source is not chains[0].source for chain in chains):
        message = (
            "start: the results come from different inputs. One query reads one input once: derive all results "
            "from the same stream object (what withWatermark(…) or union(…) returned), or start two queries."
        )
        raise AnalysisError(message)
    persisted = len(chains) > 1 or not chains[0].markable
    return Plan(
        source=chains[0].source,
        persisted=persisted,
        shared=_shared(chains) if persisted else 0,
        inputs=next(iter(planned.values())).inputs,
        aggregations=tuple(planned.values()),
        outputs=tuple(PlannedOutput(**_fields(each, aggregation=planned[each.aggregation])) for each in outputs),
    )


def _fields(described: DataclassInstance, **changed: Any) -> dict[str, Any]:
    """The fields of a dataclass as arguments of a class that extends it, some of them changed."""
    return {each.name: getattr(described, each.name) for each in fields(described)} | changed


def _shared(chains: Sequence[Transformations]) -> int:
    count = 0
    for links in zip(*(chain.links for chain in chains), strict=False):
        # Below a filter, as the highest event times are those of all rows.
        if links[0].filters or any(link is not links[0] for link in links):
            break
        count += 1
    return count
