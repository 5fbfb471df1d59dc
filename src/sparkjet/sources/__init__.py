"""The sources that sparkjet adds to ``spark.readStream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(spark: SparkSession) -> None:
    """Register sparkjet's sources with a session, for ``spark.readStream.format("sparkjet-kafka")``.

    Runs on the driver, connects to no server, and may be called again. The executors get sparkjet itself from the
    driver; they need confluent-kafka and pyarrow.

    Raises:
        AnalysisError: The extra ``kafka`` is not installed.

    >>> import sparkjet as sj
    >>> sj.register_sources(spark)
    """
    # Not at the top: the extra is optional.
    from sparkjet.sources.kafka import KafkaDataSource  # noqa: PLC0415
    from sparkjet.sources.shipping import ship  # noqa: PLC0415 - on use only

    # First, as the registration has the path of the workers in it.
    ship(spark)
    spark.dataSource.register(KafkaDataSource)
