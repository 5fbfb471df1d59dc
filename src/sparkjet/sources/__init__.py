"""The sources that sparkjet adds to ``spark.readStream``, and the contract of a user's own that acknowledges."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sparkjet.errors import AnalysisError, lacking, refuse_connect
from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message
from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource
from sparkjet.spark_line import LINE, LINE_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AcknowledgingDataSource", "AcknowledgingSource", "ConnectionLostError", "Message", "register_sources"]

ARTEMIS = "sparkjet-artemis"
"""The data source of Artemis's queues, as others below; all are in one table further down."""
GRID_MAP = "sparkjet-grid-map"
RABBITMQ = "sparkjet-rabbitmq"
_OF_A_GRID = {
    "sparkjet_grid": '"sparkjet[grid]"',
    **{name: name for name in ("msgspec", "pyarrow", "tenacity", "xxhash")},
}
_SOURCES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "sparkjet-kafka": ("kafka.source.KafkaDataSource", {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}),
    GRID_MAP: (
        "grid.map_source.GridMapDataSource",
        _OF_A_GRID,
    ),
    "sparkjet-grid-journal": (
        "grid.journal_source.GridJournalDataSource",
        _OF_A_GRID,
    ),
    ARTEMIS: ("artemis.data_source.ArtemisDataSource", {"pyarrow": "pyarrow"}),
    RABBITMQ: ("rabbitmq.data_source.RabbitDataSource", {"pika": "pika", "pyarrow": "pyarrow"}),
}
"""Name of a source: its class, and the packages that the driver needs, by the name that is imported."""

_ADMITTING = (4, 2)
"""The first line of Spark that tells a source written in Python how much of it to read."""
_SET_BY_SPARK = "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"
"""What Spark adds to a source's environment when a stream starts, in the very map that tasks of other streams from the
same source are being sent with: a task then failed with an OptionalDataException. Names that are there already change
nothing in the map; their values are Spark's wherever a Python process is started."""


def register_sources(spark: SparkSession) -> None:
    """Register sparkjet's sources with a session, for ``spark.readStream.format("sparkjet-kafka")`` and others.

    Runs on the driver, connects to no server, and may be called again. The executors get sparkjet itself from the
    driver; they need pyarrow, and for Kafka confluent-kafka. A source whose extra is not installed says so in ``load``.

    >>> import sparkjet as sj
    >>> sj.register_sources(spark)
    """
    from sparkjet.storage.shipping import ship  # noqa: PLC0415 - on use only

    refuse_connect("register_sources", spark)
    # First, as the registration has the path of the workers and their environment in it.
    ship(spark)
    for variable in _SET_BY_SPARK:
        spark.sparkContext.environment.setdefault(variable, "")
    for name, (where, packages) in _SOURCES.items():
        missing = [package for package in packages if find_spec(package) is None]
        if LINE < _ADMITTING:
            spark.dataSource.register(_absent(name, f'format("{name}") needs Spark 4.2 or later; this is {LINE_NAME}.'))
        elif missing:
            spark.dataSource.register(_absent(name, lacking(f'format("{name}"): this Python', missing, packages)))
        else:
            module, _, attribute = where.rpartition(".")
            spark.dataSource.register(getattr(import_module(f"sparkjet.connectors.{module}"), attribute))


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
