"""What results and late rows share: rows of an aggregation on their way to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.api.output_settings import OutputSettings
from sparkjet.api.sink_formats import sink_format
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.engine.batch_run import rows_of
from sparkjet.plan import links
from sparkjet.plan.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.outputs import Rows
    from sparkjet.plan.transformations import Transformations
    from sparkjet.plan.windowed_aggregation import WindowedAggregation


class ResultRows(FrameMethods):
    """Rows that an aggregation emits.

    Attributes:
        _kind: Which of its rows.
    """

    _alternatives = alternatives.RESULTS
    _kind: ClassVar[Rows]

    def __init__(self, aggregation: WindowedAggregation, transformations: Transformations) -> None:
        super().__init__(transformations)
        self._aggregation = aggregation

    def _with(self, chain: Transformations) -> Self:
        return type(self)(self._aggregation, chain)

    def alias(self, alias: str) -> Self:
        """Name the rows for columns such as ``alias.name``, as ``DataFrame.alias``."""
        return self._then(links.alias(alias))

    @property
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""
        root = next(iter(self._aggregation.lineage))
        return root.transformations.source.isStreaming

    def _computed(self) -> DataFrame:
        nowhere = OutputSettings(self._aggregation, self._kind, self._chain, sink_format("noop"))
        return rows_of(plan_of([nowhere.output(self._kind.value)]))

    @property
    def writeStream(self) -> StreamWriter:
        """The way to a sink, as ``DataFrame.writeStream``."""
        return StreamWriter(OutputSettings(self._aggregation, self._kind, self._chain))
