"""The plan of a query: one input DataFrame, the aggregations over it, and the outputs of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.plan.inputs import several_substreams, tracker_of
from sparkjet.plan.outputs import AggregationOutput, Rows, StreamOutput
from sparkjet.plan.partial_rows import ProgressDetail
from sparkjet.plan.windowed_aggregation import WindowedAggregation

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import DataFrame

    from sparkjet.plan.inputs import Input
    from sparkjet.plan.outputs import AnyOutput
    from sparkjet.plan.transformations import Transformations
    from sparkjet.snapshots.record import Fingerprint
    from sparkjet.time import InputTracker


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
class PlannedOutput(AggregationOutput):
    """An output of a query, with the aggregation of the query that it reads."""

    aggregation: PlannedAggregation


@dataclass(frozen=True)
class Plan:
    """What a query computes; pure description, made by :func:`plan_of`.

    Attributes:
        source: The streaming DataFrame that Spark runs, with the hidden columns.
        persisted: Whether a batch of it is persisted in memory, as it is read more than once.
        shared: Number of transformations that all its readers begin with; they come before it is persisted.
        inputs: The inputs united in it; none without aggregations, as nothing asks for their event time.
        aggregations: Each after its parent.
        outputs: In the order in which they are written.
    """

    source: DataFrame
    persisted: bool
    shared: int
    inputs: tuple[Input, ...]
    aggregations: tuple[PlannedAggregation, ...]
    outputs: tuple[PlannedOutput | StreamOutput, ...]

    @property
    def of_aggregations(self) -> list[PlannedOutput]:
        """The outputs that read an aggregation."""
        return [output for output in self.outputs if isinstance(output, PlannedOutput)]

    @property
    def of_stream(self) -> list[StreamOutput]:
        """The outputs that read the stream itself."""
        return [output for output in self.outputs if isinstance(output, StreamOutput)]

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
            bool(output.early_period) for output in self.of_aggregations
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
        readers = [output.aggregation.name for output in self.of_aggregations if output.rows is Rows.RESULTS]
        readers += [other.parent.name for other in self.aggregations if other.parent is not None]
        return readers.count(aggregation.name)

    def delivers_late_rows(self, aggregation: PlannedAggregation) -> bool:
        """Whether an output takes the rows that an aggregation drops."""
        late = (output for output in self.of_aggregations if output.rows is Rows.LATE)
        return aggregation.name in {output.aggregation.name for output in late}

    def begun(self, batch: DataFrame) -> DataFrame:
        """A batch after the shared transformations."""
        return self.roots[0].transformations.apply(batch, upto=self.shared) if self.roots else batch

    def tracker(self) -> InputTracker:
        """A new watermark tracker."""
        return tracker_of(self.inputs, [aggregation.grid for aggregation in self.aggregations])


def plan_of(outputs: Sequence[AnyOutput]) -> Plan:
    """The plan behind some outputs.

    Raises:
        AnalysisError: They do not all come from one ``withWatermark`` or ``union``.
    """
    planned: dict[WindowedAggregation, PlannedAggregation] = {}
    for output in outputs:
        for aggregation in output.aggregation.lineage if isinstance(output, AggregationOutput) else ():
            if aggregation not in planned:
                parent = None if aggregation.parent is None else planned[aggregation.parent]
                # Every record holds these names: others would need an upgrade (:mod:`sparkjet.snapshots.upgrades`).
                name = f"aggregation{len(planned)}"
                planned[aggregation] = PlannedAggregation(**_fields(aggregation, parent=parent), name=name)
    of_stream = [output for output in outputs if isinstance(output, StreamOutput)]
    if not planned:
        return _without_windows(of_stream)
    chains = [aggregation.transformations for aggregation in planned.values() if aggregation.parent is None]
    chains += [output.chain for output in of_stream]
    _check_one_source(chains)
    persisted = len(chains) > 1 or not chains[0].markable
    return Plan(
        source=chains[0].source,
        persisted=persisted,
        # Above a filter, as the highest event times are those of all rows.
        shared=_shared(chains, filters=False) if persisted else 0,
        inputs=next(iter(planned.values())).inputs,
        aggregations=tuple(planned.values()),
        outputs=tuple(
            output
            if isinstance(output, StreamOutput)
            else PlannedOutput(**_fields(output, aggregation=planned[output.aggregation]))
            for output in outputs
        ),
    )


def _without_windows(outputs: Sequence[StreamOutput]) -> Plan:
    """The plan of a query that computes no event time: what all outputs share is part of the query that Spark runs."""
    chains = [output.chain.bare for output in outputs]
    _check_one_source(chains)
    shared = _shared(chains, filters=True)
    return Plan(
        source=chains[0].apply(chains[0].source, upto=shared),
        persisted=len(chains) > 1,
        shared=0,
        inputs=(),
        aggregations=(),
        outputs=tuple(
            replace(output, chain=chain.after(shared)) for output, chain in zip(outputs, chains, strict=True)
        ),
    )


def _check_one_source(chains: Sequence[Transformations]) -> None:
    if all(chain.source is chains[0].source for chain in chains):
        return
    if any(chain.below is None for chain in chains) and len({id(chain.bare.source) for chain in chains}) == 1:
        message = (
            "start: one output reads the stream before withWatermark(…), another one after it. Write both from what "
            "withWatermark(…) returned: without windows, late rows and those without an event time are in it too."
        )
        raise AnalysisError(message)
    message = (
        "start: the results come from different inputs. One query reads one input once: derive all results "
        "from the same stream object (what sj.stream(…), withWatermark(…) or union(…) returned), or start two queries."
    )
    raise AnalysisError(message)


def _fields(described: DataclassInstance, **changed: Any) -> dict[str, Any]:
    """The fields of a dataclass as arguments of a class that extends it, some of them changed."""
    return {each.name: getattr(described, each.name) for each in fields(described)} | changed


def _shared(chains: Sequence[Transformations], *, filters: bool) -> int:
    """Number of links that all chains begin with; ``filters`` says whether filters count."""
    count = 0
    for links in zip(*(chain.links for chain in chains), strict=False):
        if any(link is not links[0] for link in links) or (links[0].filters and not filters):
            break
        count += 1
    return count
