"""Base of data sources whose broker keeps a message until it is acknowledged."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sparkjet.errors import AnalysisError
from sparkjet.options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkjet.sources.acknowledging.contract import AcknowledgingSource
    from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader


class AcknowledgingDataSource(DataSource):
    """Makes an :class:`AcknowledgingSource` available as a format of ``spark.readStream``.

    A subclass defines its name (``name()``), the columns of a message, and how to read the queues. Register it with
    ``spark.dataSource.register`` and read it with ``sj.stream(df)``; no other query can acknowledge its messages. Its
    options include :data:`~sparkjet.sources.acknowledging.reader_options.READER_OPTIONS`, which the base class handles.
    Instances are pickled: keep nothing in them.
    """

    place = ""
    """The directory of :mod:`sparkjet.sources.alignment`; set where the source is registered."""

    @property
    @abstractmethod
    def rows(self) -> pa.Schema:
        """The columns of a message, in the order of its values."""

    @abstractmethod
    def source(self) -> AcknowledgingSource:
        """A consumer according to the options, not yet connected; called on the driver's machine.

        Raises:
            AnalysisError: An option is missing, unknown or invalid; the message names it.
        """

    def schema(self) -> StructType:
        """The columns of a message; the options are checked here, when the user calls ``load()``."""
        # Not at the top: executors do without msgspec.
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        from sparkjet.sources.acknowledging.reader import ReaderSettings  # noqa: PLC0415

        ReaderSettings.of(Options(self.options))
        self.source()
        return from_arrow_schema(self.rows)

    def streamReader(self, schema: StructType) -> AcknowledgingStreamReader:
        """A reader of the queues."""
        from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader, ReaderSettings  # noqa: PLC0415
        from sparkjet.sources.alignment import Aligner  # noqa: PLC0415

        if schema.simpleString() != self.schema().simpleString():
            message = f'format("{self.name()}") has a fixed schema: leave schema(…) out and select from its columns.'
            raise AnalysisError(message)
        settings = ReaderSettings.of(Options(self.options))
        aligner = None if settings.drift is None else Aligner(settings.drift, self.place, self.name())
        return AcknowledgingStreamReader(self.source, self.rows, settings, aligner)
