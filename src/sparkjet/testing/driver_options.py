"""The options of a driven query, under the names that ``writeStream`` has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.api.aggregate_rows import AggregateRows
from sparkjet.api.diverted import DeadLetters
from sparkjet.api.grouped import LateStream
from sparkjet.api.stream import Stream
from sparkjet.api.writer import settings_of
from sparkjet.engine.on_change import OnChange
from sparkjet.engine.state_limit import StateLimit
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import (
    EARLY_RESULTS_PERIOD,
    IS_EARLY,
    IS_SHED,
    MAX_STATE_BYTES,
    MAX_STATE_ENTRIES,
    ON_CHANGE,
    ON_STATE_LIMIT,
    OVERLAP_EPOCHS,
    PROCESSING_GUARANTEE,
    PUBLISH_AFTER,
    STATE_PARTITIONS,
    Options,
    text,
)
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from sparkjet.plan.outputs import AnyOutput
    from sparkjet.sinks.protocol import Sink

_OUTPUT_MODE = text("outputMode", "As of writeStream.outputMode.", "append")
_OF_OUTPUTS = [_OUTPUT_MODE.name, EARLY_RESULTS_PERIOD.name, IS_EARLY.name, IS_SHED.name]
_LIMIT = (MAX_STATE_ENTRIES, MAX_STATE_BYTES, ON_STATE_LIMIT)
_OPTIONS = (PROCESSING_GUARANTEE, OVERLAP_EPOCHS, STATE_PARTITIONS, ON_CHANGE, PUBLISH_AFTER, *_LIMIT)
_KNOWN = [*(option.name for option in _OPTIONS), *_OF_OUTPUTS]


@dataclass(frozen=True)
class DriverOptions:
    """The options of ``writeStream`` that a driven query has; the others have no meaning without Spark's loop."""

    guarantee: Guarantee
    overlap: bool
    partitions: int
    on_change: OnChange
    publish_after: str | None
    output_mode: str
    early_period: str | None
    marks_early: str | None
    marks_shed: str | None
    limit: StateLimit

    @staticmethod
    def of(given: Mapping[str, object]) -> DriverOptions:
        """The options as given.

        Raises:
            AnalysisError: One is unknown, or its value is wrong.
        """
        for name in given:
            if name not in _KNOWN:
                raise AnalysisError(f'StreamDriver: no option "{name}"; {nearest(name, _KNOWN)}')
        options = Options({name: str(value) for name, value in given.items()})
        return DriverOptions(
            guarantee=Guarantee(options[PROCESSING_GUARANTEE]),
            overlap=options[OVERLAP_EPOCHS] == "true",
            partitions=options[STATE_PARTITIONS] or 2,
            on_change=OnChange.of(options[ON_CHANGE]),
            publish_after=options[PUBLISH_AFTER],
            output_mode=options[_OUTPUT_MODE],
            early_period=options.get(EARLY_RESULTS_PERIOD),
            marks_early=options.get(IS_EARLY),
            marks_shed=options.get(IS_SHED),
            limit=StateLimit(
                options[MAX_STATE_ENTRIES], options[MAX_STATE_BYTES], sheds=options[ON_STATE_LIMIT] == "shed"
            ),
        )

    def output(self, name: str, result: AggregateRows | DeadLetters | LateStream | Stream, sink: Sink) -> AnyOutput:
        """A result on its way to a sink, with these options; only rows of windows can be early.

        Raises:
            AnalysisError: The sink or an option does not fit.
        """
        writer = result.writeStream.format(sink)
        if isinstance(result, AggregateRows):
            writer = writer.outputMode(self.output_mode)
            writer = writer.option("earlyResultsPeriod", self.early_period).option("isEarly", self.marks_early)
            writer = writer.option("isShed", self.marks_shed)
        return settings_of(writer).output(name)
