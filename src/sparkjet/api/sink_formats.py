"""The destination of an output: a format by its name, or a user's sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.format import SinkFormat, Target
from sparkjet.connectors.formats import SINKS
from sparkjet.connectors.spark_formats import FILES
from sparkjet.errors import AnalysisError, nearest
from sparkjet.sinks.file_formats import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.clock import Clock
    from sparkjet.options import Options
    from sparkjet.sinks.protocol import Sink

_SINK_PARTS = ("guarantee", "check", "prepare", "commit", "published_after", "abort_orphans")


@dataclass(frozen=True)
class ChosenSink:
    """A format, and what the user has given in addition to its options.

    Attributes:
        format: The format.
        function: The function of ``foreach`` and ``foreachBatch``.
        file_format: The format of the files, if the format named it.
        table: The name that was given to ``toTable``.
    """

    format: SinkFormat
    function: Any = None
    file_format: str | None = None
    table: str = ""

    @property
    def name(self) -> str:
        """Name of the format, or of the class if the sink is the user's."""
        return self.format.name

    def create(
        self,
        options: Options,
        *,
        partition_by: tuple[str, ...],
        query: str,
        session: SparkSession,
        clock: Clock,
        complete: bool = False,
    ) -> Sink:
        """The sink, with its options; see :class:`Target`.

        Raises:
            AnalysisError: An option is missing or wrong, or the sink's extra is not installed.
        """
        beside = self.table, self.file_format, self.function, query, complete
        return self.format.create(Target(options, session, clock, partition_by, *beside))


def sink_format(source: str | Sink) -> ChosenSink:
    """The format that a user has named, or a user's sink.

    Raises:
        AnalysisError: There is no such format, or the object is not a sink.
    """
    if not isinstance(source, str):
        lacking = [part for part in _SINK_PARTS if not hasattr(source, part)]
        if lacking:
            message = (
                f"format: a {type(source).__name__} is not a sink, it has no {lacking[0]!r}. Give the name of a "
                f"format, or an object that has {', '.join(_SINK_PARTS)}: see sparkjet.sinks.Sink."
            )
            raise AnalysisError(message)
        return ChosenSink(SinkFormat(type(source).__name__, lambda _: source))
    if source.lower() in FORMATS:
        return ChosenSink(FILES, file_format=source.lower())
    # Case-insensitive, as Spark finds its own.
    found = next((each for each in SINKS.values() if each.name.lower() == source.lower()), None)
    if found is None:
        message = (
            f'format: there is no sink "{source}"; {nearest(source, [*SINKS, *FORMATS])} Write to other data '
            "sources of Spark's in foreachBatch(…)."
        )
        raise AnalysisError(message)
    if found.method == "toTable":
        raise AnalysisError("format: give the name of the table to toTable(…).")
    if found.method is not None:
        raise AnalysisError(f'format: give the function to {found.method}(…) instead of format("{found.name}").')
    return ChosenSink(found)
