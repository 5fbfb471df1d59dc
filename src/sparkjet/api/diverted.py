"""The methods of streams and results about rows that fail: where to divert them, and their dead letters."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.api.output_settings import OutputSettings
from sparkjet.api.writer import StreamWriter
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import TIME
from sparkjet.catalyst.doors import TRIES, check_open
from sparkjet.connectors.kafka.formats.malformed import tells, whole
from sparkjet.engine.batch_run import dead_letters_of
from sparkjet.errors import AnalysisError
from sparkjet.plan import links
from sparkjet.plan.dead_letter_records import records
from sparkjet.plan.diverting import ADDED, Divert, letters_shape
from sparkjet.plan.outputs import Rows
from sparkjet.plan.transformations import Transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Diverted(FrameMethods):
    """The methods of streams and results about rows that fail."""

    def divert(self, *, errors: bool, maxFailures: float | None = None) -> Self:
        """Divert rows that fail from here on, so that a bad row does not end the query.

        A row for which an SQL expression raises (a cast, a division, a parser), or a Python function, goes to the dead
        letters, as it is here, and to no result. So does a row that does not meet an expectation with
        ``action="divert"``, and one that the sink refuses, if the sink can say so before the decision. Expressions are
        evaluated in the order in which they are written: a row that a ``where`` has dropped cannot fail after it, and
        a row that has failed is not evaluated again. It still advances the watermark if its event time can be read.
        Expressions before this call still fail the query. A record of Kafka that could not be decoded, which its source
        tells in a column ``malformed`` (``mode=PERMISSIVE``), fails here.

        Say where dead letters go: with ``option("deadLettersPath", …)``, or with
        ``sj.start(…, deadLetters=stream.deadLetters.writeStream…)``.

        Args:
            errors: True.
            maxFailures: How many rows of an epoch may fail, as a number (``100``) or as a share of its rows (``0.01``);
                if more fail, the query fails, and nothing of the epoch is written. None: any number.

        Raises:
            AnalysisError: A second call, a value that is not a bound, or a column with the name of one that dead
                letters have.

        >>> import sparkjet as sj
        >>> texts = sj.stream(spark.createDataFrame([("1",), ("x",)], "text string")).divert(errors=True)
        >>> numbers = texts.selectExpr("CAST(text AS INT) AS number")
        >>> numbers.toDF().collect()
        [Row(number=1)]
        >>> numbers.deadLetters.select("text", "_error").toDF().collect()
        [Row(text='x', _error='CAST_INVALID_INPUT')]
        """
        if errors is not True:
            message = (
                f"divert: errors={errors!r}; True is the only kind of rows that can be diverted. Leave divert out."
            )
            raise AnalysisError(message)
        check_open(self.sparkSession, TRIES)
        letters_shape(self._visible)
        diverted = self._then(links.divert(_divert(maxFailures)))
        # Of a source that goes on over what it cannot decode: here it is known where such records go.
        return diverted.where(whole()) if tells(self._visible.schema) else diverted

    @property
    def deadLetters(self) -> DeadLetters:
        """The rows that have failed after ``divert``, in all results of the query that come from it.

        Raises:
            AnalysisError: There is no ``divert`` before.
        """
        chain = self._chain
        if chain.divert is None:
            message = (
                "deadLetters: rows of this stream are not diverted. Call divert(errors=True) before the steps "
                "that may raise, and ask for deadLetters after them, before the next stateful step."
            )
            raise AnalysisError(message)
        shape = letters_shape(chain.diverted_shape)
        return DeadLetters(chain, Transformations(shape, shape))

    @abstractmethod
    def _computed(self) -> DataFrame:
        """All rows, if they come from a batch DataFrame."""


class DeadLetters(FrameMethods):
    """Rows that have failed, as they were at ``divert``.

    They have the additional columns ``_stage`` (what failed), ``_error`` (Spark's error condition, or the class of the
    error of a Python function), ``_message``, ``_trace``, ``_substream``, ``_epoch`` and ``_outputs`` (the outputs that
    lack the row). Write them with
    ``sj.start(result.writeStream…, deadLetters=stream.deadLetters.writeStream…)``.
    """

    _alternatives = alternatives.RESULTS

    def __init__(self, diverted: Transformations, transformations: Transformations) -> None:
        super().__init__(transformations)
        self._diverted = diverted

    def _with(self, chain: Transformations) -> Self:
        return type(self)(self._diverted, chain)

    def kafkaRecords(self) -> Self:
        """The rows as records for ``format("kafka")``, with the headers of Kafka Streams' dead letter queue.

        Key and value are those of the message, if the rows are Kafka messages; otherwise the value is the row as JSON.
        The headers ``__streams.errors.exception`` (the error condition), ``….message``, ``….stacktrace``, and for a
        message ``….topic``, ``….partition`` and ``….offset`` are text; they follow the headers that the message had.
        ``sparkjet.errors.stage``, ``….substream``, ``….epoch`` and ``….outputs`` have the rest.

        Raises:
            AnalysisError: A column with which dead letters are delivered is no longer there.

        >>> import sparkjet as sj
        >>> texts = sj.stream(spark.createDataFrame([("x",)], "text string")).divert(errors=True)
        >>> found = texts.selectExpr("CAST(text AS INT)").deadLetters.kafkaRecords().toDF().first()
        >>> bytes(found.value), [header.key for header in found.headers][:2]
        (b'{"text":"x"}', ['__streams.errors.exception', '__streams.errors.message'])
        """
        missing = [name for name in ADDED if name not in self.columns]
        if missing:
            message = f"kafkaRecords: column {missing[0]!r} is gone. Call it on deadLetters itself."
            raise AnalysisError(message)
        return self.select(*records(self._visible))

    @property
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""
        return self._diverted.source.isStreaming

    def _computed(self) -> DataFrame:
        if TIME in self._diverted.source.columns and self._diverted.below is None:
            raise AnalysisError("toDF: dead letters of results come from a running query. Write them with writeStream.")
        return dead_letters_of(self._written.nowhere)

    @property
    def writeStream(self) -> StreamWriter:
        """The way to a sink, as ``DataFrame.writeStream``."""
        return StreamWriter(self._written)

    @property
    def _written(self) -> OutputSettings:
        return OutputSettings(None, Rows.DEAD, self._chain, diverted=self._diverted)


def _divert(most: object) -> Divert:
    """The point of a stream, with the number of its rows that may fail."""
    if isinstance(most, float) and 0 <= most < 1:
        return Divert(share=most)
    if most is None or (isinstance(most, int) and not isinstance(most, bool) and most >= 0):
        return Divert(most)
    if isinstance(most, float) and most == 1:
        message = "divert: maxFailures=1.0 would be all rows of an epoch. Leave it out, or give 1 for a single row."
        raise AnalysisError(message)
    message = (
        f"divert: maxFailures={most!r} is neither a number of rows (100) nor a share of those of an epoch, from 0.0 to "
        "below 1 (0.01)."
    )
    raise AnalysisError(message)
