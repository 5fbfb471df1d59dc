"""The settings of one output: what a writer was given, for the start of the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkjet.api.output_modes import APPEND, COMPLETE, UPDATE, check_sink, stage_in_mode
from sparkjet.api.sink_formats import ChosenSink, sink_format
from sparkjet.catalyst import columns
from sparkjet.catalyst.plan_analysis import check_stable
from sparkjet.clock import SystemClock
from sparkjet.engine.batch_run import rows_of
from sparkjet.errors import AnalysisError
from sparkjet.options import (
    EARLY_RESULTS_PERIOD,
    IS_EARLY,
    IS_SHED,
    LATE_ROWS_PATH,
    OUTPUT_OPTIONS,
    QUERY_OPTIONS,
    Option,
    Options,
)
from sparkjet.plan.outputs import AnyOutput, DeadLetterOutput, Rows, StageOutput, StreamOutput
from sparkjet.plan.planning import plan_of
from sparkjet.plan.window_join import WindowJoin
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.sinks.protocol import Keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.clock import Clock
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.plan.plan import Plan
    from sparkjet.plan.stage import Stage
    from sparkjet.plan.transformations import Transformations


@dataclass(frozen=True)
class OutputSettings:
    """One output as described by its writer; unchecked until :meth:`output`.

    Attributes:
        stage: The stage whose rows they are; None for rows of the stream itself.
        rows: Which rows.
        chain: The user's transformations of the rows.
        sink: Their destination; None until a format is chosen.
        options: As given, by name.
        mode: The output mode.
        name: Name of the query, and of the table of the memory sink.
        trigger: Arguments of Spark's ``trigger``; None for the default.
        clock: Clock of policies and timeouts; None for the default.
        listener: Called at the end of each phase.
        diverted: The chain whose failed rows they are; None for other rows.
    """

    stage: Stage | None
    rows: Rows
    chain: Transformations
    sink: ChosenSink | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = APPEND
    name: str | None = None
    trigger: Mapping[str, str | bool] | None = None
    clock: Clock | None = None
    listener: PhaseListener | None = None
    diverted: Transformations | None = None

    @property
    def diverting(self) -> list[Transformations]:
        """The chains from a source to this output whose failed rows are diverted."""
        chains = [self.chain]
        if self.stage is not None:
            feeds = [feed for stage in self.stage.lineage for feed in stage.feeds if feed.parent is None]
            chains += [feed.transformations for feed in feeds]
        return [chain for chain in chains if chain.divert is not None]

    @property
    def nowhere(self) -> Plan:
        """The plan of the output alone, whose rows are written by the reader that computes them."""
        nowhere = replace(self, sink=sink_format("noop"))
        return plan_of([nowhere.output(self.rows.value, at_once=True)])

    @property
    def is_durable(self) -> bool:
        """Whether the output outlives the session, so that the query's state must as well."""
        return self.sink is not None and self.sink.format.is_durable

    def output(self, name: str, *, at_once: bool = False) -> AnyOutput:
        """The output under its name in the record.

        Args:
            name: The name.
            at_once: Whether there is only one epoch, so that its rows are final in any mode.

        Raises:
            AnalysisError: If anything is set wrongly.
        """
        if self.sink is None:
            raise AnalysisError('start: choose a sink, e.g. format("files") or foreachBatch(…).')
        options = Options(self.options)
        options.only([*QUERY_OPTIONS, *OUTPUT_OPTIONS, *self.sink.format.options], self.sink.name)
        if self.partition_by and not self.sink.format.has_directories:
            message = f'partitionBy: format("{self.sink.name}") has no directories; use it with format("files").'
            raise AnalysisError(message)
        stage = self.stage if at_once else stage_in_mode(self, options)
        early = self._early_period(options, stage)
        sink = self.sink.create(
            options,
            partition_by=self.partition_by,
            query=self.name or "",
            session=self.chain.source.sparkSession,
            clock=self.clock or SystemClock(),
            complete=self.mode == COMPLETE,
        )
        check_sink(sink, self.mode)
        output: AnyOutput
        if self.diverted is not None:
            rows_of_it = self.diverted, self.chain.shape, self.chain.apply
            output = DeadLetterOutput(name, sink, self.sink.name, *rows_of_it, self.chain.tables)
        elif stage is None:
            output = StreamOutput(name, sink, self.sink.name, self.chain)
        else:
            # After divert(…), a column that may fail may be null.
            shown = self.chain.outlined if self.chain.divert is None else self.chain.apply
            shape = shown(self.chain.source.drop(*columns.HIDDEN))
            rows = stage, self.rows, shape, self._finished
            marks_early, complete = options[IS_EARLY], self.mode == COMPLETE
            modes = early, marks_early, self.chain.tables, complete
            output = StageOutput(name, sink, self.sink.name, *rows, *modes, self.chain, self._marks_shed(options))
        if isinstance(sink, Keyed):
            check_stable(output.sample(), sink.keys, self.sink.format.key_option)
        return output

    def _finished(self, rows: DataFrame) -> DataFrame:
        # Dropped first: the * of an expression, as in to_json(struct(*)), would include them as well.
        return self.chain.apply(rows.drop(*columns.HIDDEN))

    def _marks_shed(self, options: Options) -> bool:
        if self.rows is not Rows.RESULTS or not options[IS_SHED]:
            return False
        if columns.IS_SHED in self.chain.shape.columns:
            message = f'option("isShed") adds a column {columns.IS_SHED!r}, which exists already. Rename yours.'
            raise AnalysisError(message)
        return True

    def _early_period(self, options: Options, stage: Stage | None) -> int | None:
        if self.rows is not Rows.LATE and not isinstance(stage, WindowedAggregation | WindowJoin):
            of_windows: list[Option[Any]] = [EARLY_RESULTS_PERIOD, IS_EARLY, IS_SHED]
            if self.stage is None:
                of_windows.append(LATE_ROWS_PATH)
            for option in of_windows:
                if option in options:
                    raise AnalysisError(f"{option.name}: without windows no row is early or late. Leave it out.")
            # As in Spark, update mode is append mode here: no row changes.
            return None
        if self.mode != UPDATE:
            for option in (EARLY_RESULTS_PERIOD, IS_EARLY):
                if option in options:
                    raise AnalysisError(f'{option.name}: early rows need outputMode("update").')
            return None
        if isinstance(stage, WindowJoin):
            message = (
                'outputMode: the rows of a join are final, and there are none before; use "append". Early rows of one '
                "side would have to be taken back when the other side brings a match."
            )
            raise AnalysisError(message)
        if options[IS_EARLY] and columns.IS_EARLY in self.chain.shape.columns:
            message = f'option("isEarly") adds a column {columns.IS_EARLY!r}, which exists already. Rename yours.'
            raise AnalysisError(message)
        return options[EARLY_RESULTS_PERIOD] or 0


def computed(settings: OutputSettings) -> DataFrame:
    """The rows of an output that come from a batch DataFrame."""
    return rows_of(settings.nowhere)
