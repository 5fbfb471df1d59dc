"""Sources that sparkjet adds to ``spark.readStream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(spark: SparkSession) -> None:
    """Make sparkjet's sources known to a session: ``spark.readStream.format("sparkjet-kafka")``.

    Runs on the driver, needs no server, and may be called again. sparkjet must be installed where the executors run.

    Raises:
        AnalysisError: The extra ``kafka`` is not installed.

    >>> import sparkjet as sj
    >>> sj.register_sources(spark)
    """
    # Not at the top: the extra is optional.
    from sparkjet.sources.kafka import KafkaDataSource  # noqa: PLC0415

    spark.dataSource.register(KafkaDataSource)
