"""Replaying: the plan of an epoch in which dead letters pass once more through everything after their ``divert``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.catalyst.columns import CARRIED, SUBSTREAM, quoted
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.errors import AnalysisError
from sparkjet.plan.diverting import ADDED, OUTPUTS
from sparkjet.plan.links import everywhere
from sparkjet.plan.outputs import DeadLetterOutput, StageOutput, StreamOutput
from sparkjet.plan.plan import Plan, PlannedFeed, PlannedStage, PlannedStreamOutput
from sparkjet.plan.planning import Reader, dead_letters, expected_chains
from sparkjet.plan.sources import Source, Sources
from sparkjet.plan.transformations import Link, Transformations

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from sparkjet.plan.diverting import Divert
    from sparkjet.plan.outputs import AnyOutput


@dataclass(frozen=True)
class Replaying:
    """The outputs of a query whose dead letters are to be replayed.

    Attributes:
        plan: The plan of the query.
        outputs: The outputs from which the plan was made.
        dead: The output of the dead letters.
    """

    plan: Plan
    outputs: Sequence[AnyOutput]
    dead: DeadLetterOutput

    @staticmethod
    def of(plan: Plan, outputs: Sequence[AnyOutput]) -> Replaying:
        """The replay of a query with one output of dead letters."""
        found = [output for output in outputs if isinstance(output, DeadLetterOutput)]
        if len({id(output.chain.divert) for output in found}) != 1:
            message = (
                "replay_dead_letters: the query must divert rows at one place, and it does so at "
                f"{len({id(output.chain.divert) for output in found})}. Replay them in a query that does."
            )
            raise AnalysisError(message)
        made = Replaying(plan, outputs, found[0])
        reached = [each for names in made._reached for each in names]
        if not reached:
            message = (
                "replay_dead_letters: these are dead letters of results, which no input produces again. Fix the rows "
                "and write them where they belong."
            )
            raise AnalysisError(message)
        for name in reached:
            if reached.count(name) > 1:
                message = (
                    f"replay_dead_letters: two ways lead from divert(…) to the output {name!r}, and of a row that has "
                    "failed on one of them it is not known which. Unite them before divert(…), or use two queries."
                )
                raise AnalysisError(message)
        return made

    @property
    def columns(self) -> DataFrame:
        """A DataFrame with the columns of dead letters, for analysis only."""
        return self.dead.chain.diverted_shape

    def plan_of(self, letters: DataFrame) -> Plan:
        """The plan of an epoch over dead letters with all their columns; nothing else arrives in it."""
        divert, stages, readers = self.dead.chain.divert, dict[str, PlannedStage](), list[Reader]()
        for stage in self.plan.stages:
            feeds = []
            for feed in stage.feeds:
                if feed.parent is not None:
                    feeds.append(replace(feed, parent=stages[feed.parent.name]))
                    continue
                time = feed.feed.inputs[0].watermark.event_time if feed.feed.inputs else None
                prefix, reached = self.plan.sources.all[feed.source].prefix, self._behind(stage)
                chain = _rebased(feed.feed.transformations, divert, letters, reached, time, prefix)
                readers.append(Reader(0, chain, reached))
                feeds.append(PlannedFeed(replace(feed.feed, transformations=chain), None, 0, feed.prefixes))
            stages[stage.name] = PlannedStage(stage.name, stage.stage, tuple(feeds))
        times = [each.watermark.event_time for each in self.plan.inputs]
        written: dict[str, PlannedStreamOutput] = {}
        for output, planned in ((each, self._planned(each)) for each in self.outputs if isinstance(each, StreamOutput)):
            given = output.chain if self.plan.stages else output.chain.bare
            prefix, time = self.plan.sources.all[planned.reads].prefix, times[0] if times else None
            chain = _rebased(given, divert, letters, (output.name,), time, prefix)
            readers.append(Reader(0, chain, (output.name,)))
            written[output.name] = replace(planned, chain=chain, reads=0)
        of_results = [Reader(each.name, each.chain, (each.name,)) for each in self.plan.of_stages if each.chain]
        of_failures = [output for output in self.outputs if isinstance(output, DeadLetterOutput)]
        results: list[StageOutput | StreamOutput] = [*written.values(), *self.plan.of_stages]
        dead = {each.name: each for each in dead_letters(of_failures, [*readers, *of_results], results)}
        of_stages = {each.name: each for each in self.plan.of_stages}
        return replace(
            self.plan,
            sources=Sources((Source(letters),)),
            source=letters,
            persisted=True,
            counts_failures=False,
            shared=0,
            stages=tuple(stages.values()),
            outputs=tuple((of_stages | written | dead)[each.name] for each in self.outputs),
            expected=expected_chains([(0, each.chain) for each in readers]),
        )

    @property
    def reached(self) -> set[str]:
        """The outputs that replayed rows can reach."""
        return {name for names in self._reached for name in names}

    @property
    def _reached(self) -> list[tuple[str, ...]]:
        """The outputs behind each chain that reads diverted rows."""
        divert = self.dead.chain.divert
        feeds = [(stage, feed) for stage in self.plan.stages for feed in stage.feeds if feed.parent is None]
        found = [self._behind(stage) for stage, feed in feeds if feed.feed.transformations.divert is divert]
        streams = [output for output in self.outputs if isinstance(output, StreamOutput)]
        return [*found, *((output.name,) for output in streams if output.chain.divert is divert)]

    def _behind(self, stage: PlannedStage) -> tuple[str, ...]:
        return tuple(output.name for output in self.plan.of_stages if stage.stage in output.stage.lineage)

    def _planned(self, output: StreamOutput) -> PlannedStreamOutput:
        return next(each for each in self.plan.of_stream if each.name == output.name)


def _rebased(
    chain: Transformations,
    divert: Divert | None,
    letters: DataFrame,
    outputs: Collection[str],
    time: str | None,
    prefix: str,
) -> Transformations:
    """A chain that starts at dead letters, namely those that some outputs lack; one that does not divert gets none."""
    if chain.divert is not divert:
        nothing = IdentifiedColumns([F.lit(None).cast(field.dataType) for field in chain.shape.schema], chain.shape)
        none = Link(lambda frame: nothing.select(frame.where(F.lit(False))), None, filters=True)
        return Transformations(letters, chain.shape, (none,))
    at, links = _from_divert(chain, prefix)
    # In rows read from files, parts of a column may be null.
    schema = StructType.fromJson(json.loads(at._jdf.schema().asNullable().json()))
    columns = IdentifiedColumns([_column(field, time, at, chain) for field in schema], at)
    # Only rows that these outputs lack: others would be written twice.
    lacking = F.arrays_overlap(F.split(OUTPUTS, ", "), F.array(*(F.lit(name) for name in outputs)))
    chosen = Link(lambda frame: columns.select(frame.where(lacking)), None, filters=True)
    return Transformations(letters, chain.shape, (chosen, *links))


def _from_divert(chain: Transformations, prefix: str) -> tuple[DataFrame, tuple[Link, ...]]:
    """The rows at ``divert``, for analysis only, and the links from there, including that of the event time."""
    number = next((number for number, link in enumerate(chain.links) if link.divert is not None), None)
    if number is not None:
        return replace(chain, links=chain.links[:number]).outlined(chain.source), chain.links[number:]
    assert chain.below is not None  # noqa: S101 - as it diverts
    assert chain.timing is not None  # noqa: S101 - as it has something below
    at, links = _from_divert(chain.below, "")
    named = (everywhere(lambda frame: frame.withColumn(SUBSTREAM, F.concat(F.lit(prefix), F.col(SUBSTREAM)))),)
    return at, (*links, chain.timing, *(named if prefix else ()), *chain.links[chain.covered :])


def _column(field: StructField, time: str | None, at: DataFrame, chain: Transformations) -> Column:
    """A column of the rows at ``divert``, from a dead letter."""
    if field.name not in CARRIED:
        # Not by the type's text, in which field names that are not identifiers are not quoted.
        return F.col(quoted(field.name)).cast(field.dataType)
    if field.name == SUBSTREAM:
        return F.col("_substream")
    found = [] if time is None else attribute_ids(at, time)
    if time is None or not found or found != attribute_ids(chain.source, time):
        message = (
            f"replay_dead_letters: the event time {time!r} was replaced or dropped between withWatermark(…) and "
            "divert(…), so that dead letters do not have it. Call divert(…) first."
        )
        raise AnalysisError(message)
    return F.unix_micros(F.col(quoted(time)).cast("timestamp"))


def letters_of(given: DataFrame, shape: DataFrame) -> DataFrame:
    """The rows to be replayed, with the columns of dead letters."""
    missing = [name for name in (*shape.columns, *ADDED) if name not in given.columns]
    if missing:
        message = (
            f"replay_dead_letters: the rows have no column {missing[0]!r}. Give dead letters with all their columns, "
            "as deadLettersPath writes them."
        )
        raise AnalysisError(message)
    # In text files, an epoch is text.
    added = (F.col(name).try_cast(kind).alias(name) for name, kind in ADDED.items())
    return given.select(*(quoted(name) for name in shape.columns), *added)
