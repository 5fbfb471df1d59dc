"""What results and late rows share: rows of an aggregation on their way to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.api.output_settings import OutputSettings
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.plan import links

if TYPE_CHECKING:
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
    def writeStream(self) -> StreamWriter:
        """The way to a sink, as ``DataFrame.writeStream``."""
        return StreamWriter(OutputSettings(self._aggregation, self._kind, self._chain))
