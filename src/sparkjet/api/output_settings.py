"""The settings of one output: what a writer has been given, for the start of the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkjet.api.sink_formats import SinkFormat
from sparkjet.catalyst.columns import HIDDEN, IS_EARLY
from sparkjet.catalyst.plan_analysis import check_stable
from sparkjet.clock import SystemClock
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.plan.outputs import AggregationOutput, AnyOutput, Rows, StreamOutput
from sparkjet.sinks.protocol import Keyed
from sparkjet.time import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.clock import Clock
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.plan.transformations import Transformations
    from sparkjet.plan.windowed_aggregation import WindowedAggregation


@dataclass(frozen=True)
class OutputSettings:
    """One output as its writer describes it; unchecked until :meth:`output`.

    Attributes:
        aggregation: Whose rows they are; None for those of the stream itself.
        rows: Which rows.
        chain: The user's transformations of them.
        sink: Where they go; None until a format is chosen.
        options: As given, by name.
        update: Whether early rows are wanted as well.
        name: Of the query, and of the table of the memory sink.
        trigger: As Spark's ``trigger`` takes it; None where the default is meant.
        clock: Of policies and timeouts; None where the default is meant.
        listener: Called at the end of each phase.
    """

    aggregation: WindowedAggregation | None
    rows: Rows
    chain: Transformations
    sink: SinkFormat | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    update: bool = False
    name: str | None = None
    trigger: Mapping[str, str | bool] | None = None
    clock: Clock | None = None
    listener: PhaseListener | None = None

    @property
    def is_durable(self) -> bool:
        """Whether the output outlives the session, so that the query's state must as well."""
        return self.sink is not None and self.sink.is_durable

    def output(self, name: str) -> AnyOutput:
        """The output under the name that the record has for it.

        Raises:
            AnalysisError: If anything is set wrongly.
        """
        if self.sink is None:
            message = 'start: choose a sink, e.g. format("files") or foreachBatch(…).'
            raise AnalysisError(message)
        options = Options(self.options)
        options.check(self.sink.name)
        if self.partition_by and self.sink.name not in {"files", "table"}:
            message = f'partitionBy: format("{self.sink.name}") has no directories; use it with format("files").'
            raise AnalysisError(message)
        early = self._early_period(options)
        sink = self.sink.create(
            options,
            partition_by=self.partition_by,
            table=self.name or "",
            session=self.chain.source.sparkSession,
            clock=self.clock or SystemClock(),
        )
        output: AnyOutput
        if self.aggregation is None:
            output = StreamOutput(name, sink, self.sink.name, self.chain)
        else:
            rows = self.aggregation, self.rows, self.chain.source, self._finished
            output = AggregationOutput(name, sink, self.sink.name, *rows, early, options.flag("isEarly"))
        if isinstance(sink, Keyed):
            check_stable(output.sample(), sink.keys)
        return output

    def _finished(self, rows: DataFrame) -> DataFrame:
        # Dropped first: the * of an expression, as in to_json(struct(*)), would stand for them as well.
        return self.chain.apply(rows.drop(*HIDDEN))

    def _early_period(self, options: Options) -> int | None:
        given = options.get("earlyResultsPeriod")
        if self.rows is Rows.INPUT:
            for option in ("earlyResultsPeriod", "lateRowsPath"):
                if options.get(option) is not None:
                    message = f"{option}: without windows no row is early or late. Leave it out."
                    raise AnalysisError(message)
            # As in Spark, update mode is append mode: no row changes.
            return None
        if not self.update:
            for name in ("earlyResultsPeriod", "isEarly"):
                if options.get(name) is not None:
                    message = f'{name}: early rows need outputMode("update").'
                    raise AnalysisError(message)
            return None
        if self.rows is Rows.LATE:
            message = 'outputMode: late rows are never early; use "append".'
            raise AnalysisError(message)
        if options.flag("isEarly") and IS_EARLY in self.chain.shape.columns:
            message = f'option("isEarly") adds a column {IS_EARLY!r}, which exists already. Rename yours.'
            raise AnalysisError(message)
        return 0 if given is None else parse_duration(given, "earlyResultsPeriod", minimum=1)
