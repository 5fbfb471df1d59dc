"""The plan of a query: its sources, the stages over them, and the outputs of both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sparkjet.catalyst.columns import HIDDEN, ONLY_SUBSTREAM
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, listed
from sparkjet.catalyst.row_counter import RowCounter
from sparkjet.catalyst.written_out import WrittenOut
from sparkjet.plan.aggregation import Aggregation
from sparkjet.plan.diverting import has_failed
from sparkjet.plan.inputs import several_substreams, tracker_of
from sparkjet.plan.outputs import DeadLetterOutput, Output, Rows, StageOutput, StreamOutput
from sparkjet.plan.partial_rows import ProgressDetail
from sparkjet.plan.spark_sources import described_sources, given_names, hearings
from sparkjet.sinks.protocol import Clocked, Telling
from sparkjet.snapshots.record import Shown
from sparkjet.time import MIN, Carried, clamp, delay_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkjet.catalyst.unsaid import Unsaid
    from sparkjet.connectors.format import Hearing
    from sparkjet.plan.expectations import Expected
    from sparkjet.plan.inputs import Input
    from sparkjet.plan.sources import Sources
    from sparkjet.plan.stage import Feed, Stage
    from sparkjet.plan.static_tables import StaticTable
    from sparkjet.plan.transformations import Link, Transformations
    from sparkjet.snapshots.record import Fingerprint
    from sparkjet.time import InputTracker


@dataclass(frozen=True)
class PlannedFeed:
    """A feed of a stage of a query.

    Attributes:
        feed: The feed.
        parent: The stage of the query whose results it reads, None if it reads a source.
        source: Number of the source that it reads; 0 if it reads a stage.
        prefixes: Names of its inputs in this query.
    """

    feed: Feed
    parent: PlannedStage | None
    source: int
    prefixes: tuple[str, ...]

    @property
    def only_substream(self) -> str:
        """The name of its substream, if all its rows belong to one."""
        return f"{self.prefixes[0]}{ONLY_SUBSTREAM}" if self.parent is None and self.prefixes else ONLY_SUBSTREAM


@dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage of a query.

    Attributes:
        name: Its name in the record; the same in every run.
        stage: The stage.
        feeds: Its feeds.
    """

    name: str
    stage: Stage
    feeds: tuple[PlannedFeed, ...]


def reader(stage: str, side: int) -> str:
    """The name of a side of a stage among the readers of results."""
    return f"{stage}/{side}"


@dataclass(frozen=True)
class PlannedOutput(StageOutput):
    """An output of a query that reads one of its stages, by the name of the stage."""

    reads: str = field(kw_only=True)

    def of(self, stage: Aggregation) -> PlannedOutput:
        """The same output for a stage whose aggregates may lack rows: columns of the output may then be null."""
        if self.rows is not Rows.RESULTS or self.chain is None:
            return replace(self, stage=stage)
        return replace(self, stage=stage, shape=self._shown(stage.shape().drop(*HIDDEN)))

    def computed_from(self, aggregates: Sequence[int]) -> list[str]:
        """The columns of its rows that are computed from some of its stage's aggregates, and may be null."""
        if self.rows is not Rows.RESULTS or self.chain is None or not isinstance(self.stage, Aggregation):
            return []
        results = self.stage.shape().drop(*HIDDEN)
        given = dict(zip(results.columns, map(attribute_id, listed(analyzed(results).output())), strict=True))
        wanted = {given[name] for name in self.stage.computed_from(aggregates)}
        shape = self._shown(results)
        written = WrittenOut(shape, given.values())
        columns = [each for each in listed(analyzed(shape).output()) if each.nullable()]
        return [str(each.name()) for each in columns if written.columns(each) & wanted]

    def _shown(self, results: DataFrame) -> DataFrame:
        assert self.chain is not None  # noqa: S101 - results have one
        return self.chain.outlined(results) if self.chain.divert is None else self.chain.apply(results)


@dataclass(frozen=True)
class PlannedStreamOutput(StreamOutput):
    """An output of a query that reads one of its sources, by number."""

    reads: int = field(kw_only=True)


@dataclass(frozen=True)
class DivertedChain:
    """A chain of a query whose failed rows go to an output.

    Attributes:
        source: The number of the source that it reads, or the name of the output whose results it transforms.
        chain: The chain.
        first: The number of the first link whose failures count; earlier links are shared with a chain that has their
        failures.
        links: All links after ``divert``, as written by the user.
        lacking: The outputs that lack a row for which a link has raised, by the link's number.
    """

    source: int | str
    chain: Transformations
    first: int
    links: Sequence[Link]
    lacking: Mapping[int, str]


@dataclass(frozen=True)
class PlannedDeadLetters(DeadLetterOutput):
    """An output of dead letters, with the chains that have them, and the outputs whose sinks may refuse rows.

    Attributes:
        diverted: The chains.
        refused: Names of the outputs.
    """

    diverted: tuple[DivertedChain, ...] = field(kw_only=True)
    refused: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True)
class Plan:
    """The computation of a query; pure description, made by :func:`sparkjet.plan.planning.plan_of`.

    Attributes:
        sources: The streaming DataFrames that it reads.
        source: The DataFrame that Spark runs.
        persisted: Whether a batch of it is persisted in memory, as it is read more than once.
        shared: Number of transformations with which all its readers begin; they run before it is persisted.
        inputs: The inputs in it; none without stages, as nothing needs their event time.
        stages: The stages, each after those that it reads.
        outputs: The outputs, in the order in which they are written.
        counts_failures: Whether the job that reads a batch finds out whether any row has failed; otherwise a separate
            job does, over a persisted batch.
        expected: The expectations on the way from a source, by its number.
        expected_of: The expectations of results, by their reader: an output, or a side of a stage as :func:`reader`
        names it.
    """

    sources: Sources
    source: DataFrame
    persisted: bool
    shared: int
    inputs: tuple[Input, ...]
    stages: tuple[PlannedStage, ...]
    outputs: tuple[PlannedOutput | PlannedStreamOutput | PlannedDeadLetters, ...]
    counts_failures: bool = False
    expected: tuple[tuple[int, Expected], ...] = ()
    expected_of: Mapping[str, Expected] = field(default_factory=dict)

    @property
    def expectations(self) -> list[str]:
        """The names of all expectations."""
        found = [expected for _, expected in self.expected] + [*self.expected_of.values()]
        return [each.name for expected in found for each in expected.all]

    @property
    def of_stages(self) -> list[PlannedOutput]:
        """The outputs that read a stage."""
        return [output for output in self.outputs if isinstance(output, PlannedOutput)]

    @property
    def of_stream(self) -> list[PlannedStreamOutput]:
        """The outputs that read a source itself."""
        return [output for output in self.outputs if isinstance(output, PlannedStreamOutput)]

    @property
    def of_failures(self) -> list[PlannedDeadLetters]:
        """The outputs of dead letters."""
        return [output for output in self.outputs if isinstance(output, PlannedDeadLetters)]

    @property
    def progress_detail(self) -> ProgressDetail:
        """The facts about event time that partial aggregation has to find out."""
        if self.persisted or not self.inputs:
            return ProgressDetail.NOTHING
        return ProgressDetail.EACH if several_substreams(self.inputs) else ProgressDetail.ALL

    @cached_property
    def failures(self) -> RowCounter | None:
        """Counts the rows that have failed, if the job that reads them does so."""
        return RowCounter(self.source.sparkSession, has_failed()) if self.counts_failures else None

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Names of Spark's sources, in order; none if Spark numbers them."""
        return given_names(self.source)

    @cached_property
    def described_sources(self) -> list[list[str]]:
        """For each of Spark's sources, in order: the prefix of its input, its given name, and what it reads."""
        prefixes = [each.prefix for each in self.inputs for _ in range(each.sources)]
        described = described_sources(self.source)
        # A source that two inputs read is listed once.
        prefixes = prefixes if len(prefixes) == len(described) else [""] * len(described)
        return [[prefix, *each] for prefix, each in zip(prefixes, described, strict=True)]

    @cached_property
    def hearings(self) -> tuple[Hearing | None, ...]:
        """For each of Spark's sources, in order, who hears what its writers tell; None where nobody asks, or need."""
        asked = [isinstance(each.watermark.policy, Carried) for each in self.inputs for _ in range(each.sources)]
        if not any(asked):
            return ()
        found = hearings(self.source)
        # A source that two inputs read is listed once.
        asked = asked if len(asked) == len(found) else [True] * len(found)
        return tuple(each if wanted else None for each, wanted in zip(found, asked, strict=True))

    @property
    def uses_clock(self) -> bool:
        """Whether an epoch can be due while nothing arrives."""
        return (
            any(each.watermark.uses_clock for each in self.inputs)
            or any(bool(output.early_period) for output in self.of_stages)
            or any(stage.stage.uses_clock for stage in self.stages)
            or any(isinstance(output.sink, Clocked) and output.sink.uses_clock for output in self.outputs)
            # It may have been too early to report a watermark to readers.
            or any(isinstance(output.sink, Telling) for output in self.outputs)
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """The properties that must not change between two runs, because the saved state would no longer fit."""
        described: Fingerprint = {
            "inputs": {each.prefix: [each.watermark.event_time, *each.watermark.by] for each in self.inputs}
        }
        for stage in self.stages:
            reads = [None if feed.parent is None else feed.parent.name for feed in stage.feeds]
            described[stage.name] = {"reads": reads[0] if len(reads) == 1 else reads, **stage.stage.fingerprint}
        return described

    @property
    def unsaid(self) -> Unsaid:
        """The properties that the texts of the fingerprint leave out, and that must not change either."""
        said = {f"{stage.name} {what}": value for stage in self.stages for what, value in stage.stage.unsaid.items()}
        return {**said, "sources": self.described_sources}

    @property
    def shown(self) -> dict[str, Shown]:
        """The facts about the stages that readers of the state need."""
        shown = {stage.name: stage.stage.shown for stage in self.stages}
        return {name: each for name, each in shown.items() if each != Shown()}

    def with_lacking(self, lacking: Mapping[str, tuple[int, ...]]) -> Plan:
        """The plan with aggregates that have not seen all rows, by stage; no other stage reads any of these stages."""
        if not lacking:
            return self
        changed = {
            stage.name: replace(stage.stage, lacking=lacking[stage.name])
            for stage in self.stages
            if stage.name in lacking and isinstance(stage.stage, Aggregation)
        }
        return replace(
            self,
            stages=tuple(
                replace(each, stage=changed[each.name]) if each.name in changed else each for each in self.stages
            ),
            outputs=tuple(
                each.of(changed[each.reads]) if isinstance(each, PlannedOutput) and each.reads in changed else each
                for each in self.outputs
            ),
        )

    def watermark_of(self, output: Output, reached: int) -> int | None:
        """The watermark of an output's rows: no row of a later epoch is older, except for late ones."""
        if not self.inputs or output.behind is None:
            return None
        return reached if reached == MIN else clamp(reached - output.behind)

    @property
    def tables(self) -> list[StaticTable]:
        """The static tables that each epoch needs."""
        found = [table for stage in self.stages for feed in stage.feeds for table in feed.feed.transformations.tables]
        found += [table for output in self.of_stream for table in output.chain.tables]
        found += [table for output in self.of_stages for table in output.tables]
        found += [table for output in self.of_failures for table in output.tables]
        return list(dict.fromkeys(found))

    def consumers(self, name: str) -> int:
        """The number of outputs and stages that read a stage's results."""
        readers = [output.reads for output in self.of_stages if output.rows is Rows.RESULTS]
        readers += [feed.parent.name for stage in self.stages for feed in stage.feeds if feed.parent is not None]
        return readers.count(name)

    def lags_of(self, stage: PlannedStage) -> dict[str, int | None]:
        """The lags of the inputs whose rows a stage judges by the watermark, by the inputs' prefixes."""
        judged = zip(stage.feeds, stage.stage.intakes, strict=True)
        prefixes = {name for feed, intake in judged if feed.parent is None and intake.timed for name in feed.prefixes}
        return {each.prefix: delay_of(each.watermark.policy) for each in self.inputs if each.prefix in prefixes}

    def delivers_late_rows(self, name: str) -> bool:
        """Whether an output takes the rows that a stage drops."""
        return name in {output.reads for output in self.of_stages if output.rows is Rows.LATE}

    def rows(self, batch: DataFrame, source: int, chain: Transformations) -> DataFrame:
        """The rows at the end of a chain that reads a source, from a batch that has gone through :meth:`begun`."""
        return chain.apply(self.sources.rows(batch, source), after=self.shared)

    def tried(self, batch: DataFrame, source: int, chain: Transformations) -> DataFrame:
        """The rows at the end of a chain that diverts, including failed ones; otherwise like :meth:`rows`."""
        return chain.tried(self.sources.rows(batch, source), after=self.shared)

    def begun(self, batch: DataFrame) -> DataFrame:
        """A batch after the shared transformations."""
        feeds = [feed for stage in self.stages for feed in stage.feeds if feed.parent is None]
        return feeds[0].feed.transformations.apply(batch, upto=self.shared) if self.shared else batch

    def tracker(self) -> InputTracker:
        """A new watermark tracker."""
        return tracker_of(self.inputs, [stage.stage.grid for stage in self.stages])
