"""All formats of sparkjet: a sink or a source is one line here, and its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource

from sparkjet.connectors import spark_formats
from sparkjet.connectors.artemis import format as artemis
from sparkjet.connectors.delta import format as delta
from sparkjet.connectors.files import format as files
from sparkjet.connectors.grid import format as grid
from sparkjet.connectors.iceberg import format as iceberg
from sparkjet.connectors.jdbc import format as jdbc
from sparkjet.connectors.kafka import format as kafka
from sparkjet.connectors.postgres import format as postgres
from sparkjet.connectors.rabbitmq import format as rabbitmq
from sparkjet.connectors.state import format as state
from sparkjet.errors import AnalysisError, lacking
from sparkjet.spark_line import LINE, LINE_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.format import SinkFormat, SourceFormat

SINKS: Mapping[str, SinkFormat] = {
    each.name: each
    for each in (
        artemis.SINK,
        delta.SINK,
        grid.JOURNAL,
        grid.MAP,
        iceberg.SINK,
        jdbc.SINK,
        kafka.SINK,
        postgres.SINK,
        rabbitmq.SINK,
        *spark_formats.SINKS,
    )
}
"""The formats of ``writeStream``, by name."""
SOURCES: Mapping[str, SourceFormat] = {
    each.name: each
    for each in (
        artemis.SOURCE,
        files.SOURCE,
        grid.JOURNAL_SOURCE,
        grid.MAP_SOURCE,
        kafka.SOURCE,
        rabbitmq.SOURCE,
        state.SOURCE,
    )
}
"""The formats that :func:`register_sources` registers, by name."""

_ADMITTING = (4, 2)
"""The first line of Spark that tells a source written in Python how much of it to read."""
_SET_BY_SPARK = "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"
"""Variables that Spark adds to a source's environment when a stream starts, while tasks of other streams from the same
source are being sent with the same map: a task then failed with an OptionalDataException. Names that are there
already change nothing in the map; their values are Spark's wherever a Python process is started."""


def register_sources(
    spark: SparkSession, bound: Callable[[type[DataSource]], type[DataSource]] = lambda source: source
) -> None:
    """Register the sources with a session, each as ``bound`` makes it; users call :func:`sparkjet.register_sources`."""
    from sparkjet.storage.shipping import ship  # noqa: PLC0415 - on use only

    # First, as the registration has the path of the workers and their environment in it.
    ship(spark)
    for variable in _SET_BY_SPARK:
        spark.sparkContext.environment.setdefault(variable, "")
    for name, source in SOURCES.items():
        missing = [package for package in source.packages if find_spec(package) is None]
        if LINE < _ADMITTING:
            _register(spark, _absent(name, f'format("{name}") needs Spark 4.2 or later; this is {LINE_NAME}.'))
        elif missing:
            told = lacking(f'format("{name}"): this Python', missing, source.packages)
            _register(spark, _absent(name, told))
        else:
            _register(spark, bound(source.load()))


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark looks for sources of its own in a Python process that may have read one of ours before; what it has
        # found there, no session can register again.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _absent(called: str, why: str) -> type[DataSource]:
    """A source that cannot be loaded: otherwise Spark would say that there is none of this name, which helps nobody."""

    class Absent(DataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            raise AnalysisError(why)

    return Absent
