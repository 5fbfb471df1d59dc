"""The common part of results and late rows: rows of a stage on their way to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from typing_extensions import Self

from sparkjet.api.diverted import Diverted
from sparkjet.api.expecting import Expecting
from sparkjet.api.output_settings import OutputSettings, computed
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.plan import links

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.outputs import Rows
    from sparkjet.plan.stage import Stage
    from sparkjet.plan.transformations import Transformations


class ResultRows(Diverted, Expecting):
    """Rows that a stage emits or drops.

    Attributes:
        _kind: Which of the stage's rows.
    """

    _alternatives = alternatives.RESULTS
    _kind: ClassVar[Rows]

    def __init__(self, stage: Stage, transformations: Transformations) -> None:
        super().__init__(transformations)
        self._stage = stage

    def _with(self, chain: Transformations) -> Self:
        return type(self)(self._stage, chain)

    def alias(self, alias: str) -> Self:
        """Name the rows for columns such as ``alias.name``, as ``DataFrame.alias``."""
        return self._then(links.alias(alias))

    @property
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""
        return self._stage.feeds[0].is_streaming

    def _computed(self) -> DataFrame:
        return computed(self._written)

    @property
    def writeStream(self) -> StreamWriter:
        """The way to a sink, as ``DataFrame.writeStream``."""
        return StreamWriter(self._written)

    @property
    def _written(self) -> OutputSettings:
        return OutputSettings(self._stage, self._kind, self._chain)
