"""The sources that sparkjet adds to ``spark.readStream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(spark: SparkSession) -> None:
    """Register sparkjet's sources with a session, for ``spark.readStream.format("sparkjet-kafka")``.

    Runs on the driver, connects to no server, and may be called again. sparkjet must be installed on the executors.

    Raises:
        AnalysisError: The extra ``kafka`` is not installed.

    >>> import sparkjet as sj
    >>> sj.register_sources(spark)
    """
    # Not at the top: the extra is optional.
    from sparkjet.sources.kafka import KafkaDataSource  # noqa: PLC0415

    spark.dataSource.register(KafkaDataSource)
