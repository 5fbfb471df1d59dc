"""Planning: from the outputs of a query to its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.plan.outputs import AnyOutput, StageOutput, StreamOutput
from sparkjet.plan.plan import Plan, PlannedFeed, PlannedOutput, PlannedStage, PlannedStreamOutput
from sparkjet.plan.read_context import check_read_context
from sparkjet.plan.sources import Sources

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import DataFrame

    from sparkjet.plan.stage import Feed, Stage
    from sparkjet.plan.transformations import Transformations


def plan_of(outputs: Sequence[AnyOutput]) -> Plan:
    """The plan behind some outputs.

    Raises:
        AnalysisError: They do not all come from one stream, or from streams that are joined.
    """
    of_stages = [output for output in outputs if isinstance(output, StageOutput)]
    of_stream = [output for output in outputs if isinstance(output, StreamOutput)]
    plan = _with_stages(outputs, of_stages, of_stream) if of_stages else _without_stages(of_stream)
    results = [each.shape if isinstance(each, StageOutput) else each.chain.shape for each in outputs]
    # Of each stage too: the plan of some results ends at the stage.
    results += [feed.feed.transformations.shape for stage in plan.stages for feed in stage.feeds]
    results += [stage.stage.shape() for stage in plan.stages]
    held = plan.begun(plan.source) if plan.persisted else None
    check_read_context([each.rows for each in plan.sources.all], held, results)
    return plan


def _with_stages(
    outputs: Sequence[AnyOutput], of_stages: Sequence[StageOutput], of_stream: Sequence[StreamOutput]
) -> Plan:
    """The plan of a query that keeps state."""
    stages = list(dict.fromkeys(stage for output in of_stages for stage in output.stage.lineage))
    read = [_read_by(output) for output in outputs]
    _check_connected([[chain for chain, _ in each] for each in read])
    named: dict[DataFrame, str | None] = {}
    for chain, name in (pair for each in read for pair in each):
        # An output of the stream's own rows does not know what the stream is called.
        named[chain.source] = name or named.get(chain.source)
    sources = Sources.of(named)
    numbers = {each.rows: number for number, each in enumerate(sources.all)}
    planned: dict[Stage, PlannedStage] = {}
    for stage in stages:
        feeds = tuple(_planned(feed, planned, sources, numbers) for feed in stage.feeds)
        # Every record holds these names: others would need an upgrade (:mod:`sparkjet.snapshots.upgrades`).
        planned[stage] = PlannedStage(f"stage{len(planned)}", stage, feeds)
    roots = {feed.source: feed for stage in planned.values() for feed in stage.feeds if feed.parent is None}
    chains = [feed.feed.transformations for stage in planned.values() for feed in stage.feeds if feed.parent is None]
    chains += [output.chain for output in of_stream]
    # In the order of the sources, by which Spark reports their offsets.
    inputs = [each for number, source in enumerate(sources.all) for each in source.named(roots[number].feed.inputs)]
    # Without a watermark nobody misses the rows that a filter drops.
    persisted = len(chains) > 1 or not (chains[0].markable or not inputs)
    return Plan(
        sources=sources,
        source=sources.united,
        persisted=persisted,
        # Above a filter, as the highest event times are those of all rows.
        shared=_shared(chains, filters=False) if persisted and len(sources.all) == 1 else 0,
        inputs=tuple(inputs),
        stages=tuple(planned.values()),
        outputs=tuple(
            PlannedStreamOutput(**_fields(output), reads=numbers[output.chain.source])
            if isinstance(output, StreamOutput)
            else PlannedOutput(**_fields(output), reads=planned[output.stage].name)
            for output in outputs
        ),
    )


def _planned(
    feed: Feed, planned: Mapping[Stage, PlannedStage], sources: Sources, numbers: Mapping[DataFrame, int]
) -> PlannedFeed:
    if feed.parent is not None:
        return PlannedFeed(feed, planned[feed.parent], 0, ())
    number = numbers[feed.transformations.source]
    return PlannedFeed(feed, None, number, tuple(each.prefix for each in sources.all[number].named(feed.inputs)))


def _read_by(output: AnyOutput) -> list[tuple[Transformations, str | None]]:
    """The chains from sources that an output reads, through all stages, with the name of each stream."""
    if isinstance(output, StreamOutput):
        return [(output.chain, None)]
    feeds = [feed for stage in output.stage.lineage for feed in stage.feeds if feed.parent is None]
    return [(feed.transformations, feed.name) for feed in feeds]


def _without_stages(outputs: Sequence[StreamOutput]) -> Plan:
    """The plan of a query that computes no event time: what all outputs share is part of the query that Spark runs."""
    chains = [output.chain.bare for output in outputs]
    _check_connected([[chain] for chain in chains])
    shared = _shared(chains, filters=True)
    source = chains[0].apply(chains[0].source, upto=shared)
    return Plan(
        sources=Sources.of({source: None}),
        source=source,
        persisted=len(chains) > 1,
        shared=0,
        inputs=(),
        stages=(),
        outputs=tuple(
            PlannedStreamOutput(**_fields(replace(output, chain=chain.after(shared))), reads=0)
            for output, chain in zip(outputs, chains, strict=True)
        ),
    )


def _check_connected(read: Sequence[Sequence[Transformations]]) -> None:
    """Refuse outputs of different sources that no stage reads together.

    Args:
        read: The chains that each output reads.
    """
    groups = [{chain.source for chain in chains} for chains in read]
    together, rest = groups[0], groups[1:]
    while any(each & together for each in rest):
        together = together.union(*(each for each in rest if each & together))
        rest = [each for each in rest if not each & together]
    if not rest:
        return
    chains = [chain for each in read for chain in each]
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
        if filters and links[0].table is not None and links[0].table.by_epoch:
            # In Spark's own query it would be asked for once.
            break
        count += 1
    return count
