"""Planning: from the outputs of a query to its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sparkjet.catalyst.doors import COUNTERS, is_open
from sparkjet.catalyst.plan_analysis import check_read_context, is_repeatable
from sparkjet.errors import AnalysisError
from sparkjet.plan.diverting import common
from sparkjet.plan.expectations import Expected
from sparkjet.plan.outputs import AnyOutput, DeadLetterOutput, StageOutput, StreamOutput
from sparkjet.plan.plan import (
    DivertedChain,
    Plan,
    PlannedDeadLetters,
    PlannedFeed,
    PlannedOutput,
    PlannedStage,
    PlannedStreamOutput,
    reader,
)
from sparkjet.plan.sources import Sources
from sparkjet.plan.spark_sources import acknowledging_source

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import DataFrame

    from sparkjet.plan.expectations import Expectation
    from sparkjet.plan.stage import Feed, Stage
    from sparkjet.plan.transformations import Link, Transformations

_Name = TypeVar("_Name", int, str)
Planned: TypeAlias = PlannedOutput | PlannedStreamOutput | PlannedDeadLetters


def plan_of(outputs: Sequence[AnyOutput]) -> Plan:
    """The plan behind some outputs."""
    of_stages = [output for output in outputs if isinstance(output, StageOutput)]
    of_stream = [output for output in outputs if isinstance(output, StreamOutput)]
    of_failures = [output for output in outputs if isinstance(output, DeadLetterOutput)]
    alone = not of_stages and not of_stream
    if alone:
        # Failures are found by computing the rows, as if for an output.
        of_stream = [StreamOutput(each.name, each.sink, each.format, each.chain) for each in of_failures[:1]]
    rows = [output for output in outputs if not isinstance(output, DeadLetterOutput)]
    plan = (
        _with_stages(rows, of_stages, of_stream, of_failures)
        if of_stages
        else _without_stages(of_stream, of_failures, alone=alone)
    )
    plan = replace(plan, outputs=_in_order(outputs, plan.outputs), expected_of=_expected_of(plan))
    _check_named(plan.expectations)
    results = [each.chain.shape if isinstance(each, StreamOutput) else each.shape for each in outputs]
    # Those of each stage too: the plan of results ends at the stage.
    results += [feed.feed.transformations.shape for stage in plan.stages for feed in stage.feeds]
    results += [stage.stage.shape() for stage in plan.stages]
    held = plan.begun(plan.source) if plan.persisted else None
    check_read_context([each.rows for each in plan.sources.all], held, results)
    return plan


def _in_order(outputs: Sequence[AnyOutput], planned: Sequence[Planned]) -> tuple[Planned, ...]:
    named = {each.name: each for each in planned}
    return tuple(named[each.name] for each in outputs)


def _with_stages(
    outputs: Sequence[StageOutput | StreamOutput],
    of_stages: Sequence[StageOutput],
    of_stream: Sequence[StreamOutput],
    of_failures: Sequence[DeadLetterOutput],
) -> Plan:
    """The plan of a query that keeps state."""
    stages = list(dict.fromkeys(stage for output in of_stages for stage in output.stage.lineage))
    read = [_read_by(output) for output in outputs]
    _check_connected([[chain for chain, _ in each] for each in read])
    named: dict[DataFrame, str | None] = {}
    for chain, name in (pair for each in read for pair in each):
        # An output of the stream's own rows does not know the name of the stream.
        named[chain.source] = name or named.get(chain.source)
    sources = Sources.of(named)
    numbers = {each.rows: number for number, each in enumerate(sources.all)}
    planned: dict[Stage, PlannedStage] = {}
    for stage in stages:
        feeds = tuple(_planned(feed, planned, sources, numbers) for feed in stage.feeds)
        # Every record holds these names: others would need an upgrade (:data:`sparkjet.snapshots.record.STEPS`).
        planned[stage] = PlannedStage(f"stage{len(planned)}", stage, feeds)
    roots = {feed.source: feed for stage in planned.values() for feed in stage.feeds if feed.parent is None}
    for stage in stages:
        _check_diverted(stage)
    readers = [
        Reader(feed.source, feed.feed.transformations, _behind(stage, of_stages))
        for stage, each in planned.items()
        for feed in _roots([each])
    ]
    readers += [Reader(numbers[output.chain.source], output.chain, (output.name,)) for output in of_stream]
    read_chains = [(each.source, each.chain) for each in readers if isinstance(each.source, int)]
    chains = [chain for _, chain in read_chains]
    readers += [Reader(each.name, each.chain, (each.name,)) for each in of_stages if each.chain is not None]
    for chain in (each.chain for each in readers):
        if chain.divert is not None:
            # What Spark refuses to try is refused now, not in the first epoch.
            chain.tried(chain.source)
    # In the order of the sources, in which Spark reports their offsets.
    inputs = [each for number, source in enumerate(sources.all) for each in source.named(roots[number].feed.inputs)]
    # Without a watermark, nobody needs the rows that a filter drops.
    counted = expected_chains(read_chains)
    # For results that divert, the rows are held anyway.
    diverts = bool(of_failures) and any(chain.divert is not None for chain in chains)
    counts = diverts and not counted and _can_count(chains) and (chains[0].markable or not inputs)
    held = bool(counted) or (diverts and not counts)
    persisted = len(chains) > 1 or held or not (chains[0].markable or not inputs)
    return Plan(
        counts_failures=counts,
        sources=sources,
        source=sources.united,
        persisted=persisted,
        # Above any filter, as the highest event times are those of all rows.
        shared=_shared(chains, filters=False) if persisted and len(sources.all) == 1 else 0,
        inputs=tuple(inputs),
        stages=tuple(planned.values()),
        outputs=(
            *(PlannedOutput(**_fields(each), reads=planned[each.stage].name) for each in of_stages),
            *(PlannedStreamOutput(**_fields(each), reads=numbers[each.chain.source]) for each in of_stream),
            *dead_letters(of_failures, readers, [*of_stream, *of_stages]),
        ),
        expected=counted,
    )


def _behind(stage: Stage, outputs: Sequence[StageOutput]) -> tuple[str, ...]:
    """The outputs that are reached by the rows that a stage reads."""
    return tuple(output.name for output in outputs if stage in output.stage.lineage)


def _roots(stages: Iterable[PlannedStage]) -> list[PlannedFeed]:
    return [feed for stage in stages for feed in stage.feeds if feed.parent is None]


@dataclass(frozen=True)
class Reader:
    """A chain of a query, by where it begins and where its rows go.

    Attributes:
        source: The number of the source, or the name of the output whose results it transforms.
        chain: The chain.
        outputs: Names of the outputs that lack a row that does not pass through the chain.
    """

    source: int | str
    chain: Transformations
    outputs: tuple[str, ...]


def dead_letters(
    outputs: Sequence[DeadLetterOutput], readers: Sequence[Reader], results: Iterable[StageOutput | StreamOutput]
) -> list[PlannedDeadLetters]:
    """The outputs of dead letters, each with the chains after its ``divert``; a shared failure counts once."""
    planned = []
    for output in outputs:
        found: list[DivertedChain] = []
        for each in readers:
            if each.chain.divert is None or each.chain.divert is not output.chain.divert:
                continue
            links = each.chain.diverted_links
            shared = [common(links, one.links) for one in found]
            if found and any(count == len(links) for count in shared):
                # All of its failures are also another chain's.
                continue
            first = links[max(shared, default=0)].number if links else 0
            lacking = {link.number: ", ".join(_lacking(link, readers)) for link in links}
            found.append(DivertedChain(each.source, each.chain, first, links, lacking))
        if not found:
            message = (
                "start: dead letters are asked of a stream from which no result comes. Take deadLetters "
                "of the stream that divert(…) returned, or of one that was made from it."
            )
            raise AnalysisError(message)
        written = [each for each in results if each.chain is not None and each.chain.divert is output.chain.divert]
        refused = tuple(each.name for each in written)
        planned.append(PlannedDeadLetters(**_fields(output), diverted=tuple(found), refused=refused))
    return planned


def _lacking(link: Link, readers: Sequence[Reader]) -> list[str]:
    """The outputs that lack a row for which a link has raised."""
    having = [each for each in readers if any(found is link for found in each.chain.all_links)]
    return list(dict.fromkeys(name for each in having for name in each.outputs))


def expected_chains(chains: Sequence[tuple[_Name, Transformations]]) -> tuple[tuple[_Name, Expected], ...]:
    """The expectations of chains, each where it is read first: rows of a common beginning are counted once.

    A chain is given with the number of its source, or the name of its reader.
    """
    counted: list[Expectation] = []
    found: list[tuple[_Name, Expected]] = []
    for name, chain in chains:
        each = Expected.of(chain, counted)
        if each.all:
            found.append((name, each))
            counted += each.all
    return tuple(found)


def _expected_of(plan: Plan) -> dict[str, Expected]:
    """The expectations of results, by their first reader."""
    readers = [
        (reader(stage.name, side), feed.feed.transformations)
        for stage in plan.stages
        for side, feed in enumerate(stage.feeds)
        if feed.parent is not None
    ]
    readers += [(output.name, output.chain) for output in plan.of_stages if output.chain is not None]
    return dict(expected_chains(readers))


def _check_named(names: Sequence[str]) -> None:
    """Refuse two expectations that would be counted together."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = (
            f"start: two expectations of the query are called {twice[0]!r}, by which they are counted. Give each "
            "another name; or call expect(…) once, and make both results of what it returns."
        )
        raise AnalysisError(message)


def _check_diverted(stage: Stage) -> None:
    """Refuse a stage that would still fail the query if one of its expressions raises for a row after ``divert``."""
    if any(feed.parent is not None and feed.transformations.divert is not None for feed in stage.feeds):
        message = "divert: these results are read by another stateful step. Call it on what that one returns."
        raise AnalysisError(message)
    diverts = any(feed.parent is None and feed.transformations.divert is not None for feed in stage.feeds)
    found = stage.untried if diverts else None
    if found is not None:
        message = (
            f"divert: {found} is not tried row by row, and would end the query where it raises. Compute what may raise "
            "in a column before, with withColumn(…)."
        )
        raise AnalysisError(message)


def _planned(
    feed: Feed, planned: Mapping[Stage, PlannedStage], sources: Sources, numbers: Mapping[DataFrame, int]
) -> PlannedFeed:
    if feed.parent is not None:
        return PlannedFeed(feed, planned[feed.parent], 0, ())
    number = numbers[feed.transformations.source]
    return PlannedFeed(feed, None, number, tuple(each.prefix for each in sources.all[number].named(feed.inputs)))


def _read_by(output: StageOutput | StreamOutput) -> list[tuple[Transformations, str | None]]:
    """The chains from sources that an output reads, through all stages, with the name of each stream."""
    if isinstance(output, StreamOutput):
        return [(output.chain, None)]
    feeds = [feed for stage in output.stage.lineage for feed in stage.feeds if feed.parent is None]
    return [(feed.transformations, feed.name) for feed in feeds]


def _without_stages(outputs: Sequence[StreamOutput], of_failures: Sequence[DeadLetterOutput], *, alone: bool) -> Plan:
    """The plan of a query without event time: what all outputs share is part of the query that Spark runs."""
    chains = [output.chain.bare for output in outputs]
    _check_connected([[chain] for chain in chains])
    shared = _shared(chains, filters=True)
    source = chains[0].apply(chains[0].source, upto=shared)
    # Each once: readers identify a chain by its object.
    rest = {id(chain): chain.after(shared) for chain in chains}
    counted = expected_chains([(0, chain) for chain in chains])
    counts = bool(of_failures) and not counted and not alone
    counts = counts and _can_count(chains) and outputs[0].reads_once
    readers = [Reader(0, chain, (output.name,)) for output, chain in zip(outputs, chains, strict=True)]
    return Plan(
        counts_failures=counts,
        sources=Sources.of({source: None}),
        source=source,
        persisted=len(chains) > 1 or bool(counted) or (bool(of_failures) and not counts),
        shared=0,
        inputs=(),
        stages=(),
        outputs=(
            *(
                PlannedStreamOutput(**_fields(replace(output, chain=rest[id(chain)])), reads=0)
                for output, chain in zip(outputs, chains, strict=True)
            ),
            *(
                replace(each, diverted=tuple(replace(one, chain=rest[id(one.chain)]) for one in each.diverted))
                for each in dead_letters(of_failures, readers, outputs)
            ),
        ),
        expected=tuple((source, replace(each, chain=rest[id(each.chain)])) for source, each in counted),
    )


def _can_count(chains: Sequence[Transformations]) -> bool:
    """Whether the only reader of a batch can also find out whether a row has failed.

    If one has, the batch is read again: its rows must be the same, and fail again.
    """
    (chain, *others) = chains
    source = chain.root.source
    return (
        not others
        and all(link.table is None for link in chain.all_links)
        # Link by link after divert: Spark does not consider attempts deterministic, and a stage's own links read
        # times.
        and is_repeatable(chain.diverted_shape)
        and all(link.repeats for link in chain.diverted_links)
        and acknowledging_source(source) is None
        and is_open(source.sparkSession, COUNTERS)
    )


def _check_connected(read: Sequence[Sequence[Transformations]]) -> None:
    """Refuse outputs of different sources that no stage reads together."""
    groups = [{chain.source for chain in chains} for chains in read]
    together, rest = groups[0], groups[1:]
    while any(each & together for each in rest):
        together = together.union(*(each for each in rest if each & together))
        rest = [each for each in rest if not each & together]
    if not rest:
        return
    chains = [chain for each in read for chain in each]
    if any(chain.below is None for chain in chains) and len({id(chain.root.source) for chain in chains}) == 1:
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
    """The number of links with which all chains begin; ``filters`` says whether filters count."""
    count = 0
    for links in zip(*(chain.links for chain in chains), strict=False):
        counts = links[0].expectation is not None
        if any(link is not links[0] for link in links) or (chains[0].drops(count) and (counts or not filters)):
            break
        if filters and links[0].table is not None and links[0].table.by_epoch:
            # In Spark's own query, the table would be requested only once.
            break
        count += 1
    return count
