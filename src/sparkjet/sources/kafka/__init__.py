"""The source ``sparkjet-kafka``: Apache Kafka topics as a stream."""

import platform
import sys

from sparkjet.errors import AnalysisError, lacking

PACKAGES = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
"""Packages that the driver, its planner and the executors need, by the name that is imported."""

try:
    from sparkjet.sources.kafka.source import KafkaDataSource
except ImportError as error:
    # In one of Spark's workers, which plans batches on the driver's machine, and whose errors arrive as text: a driver
    # that lacks something does not come here, as it registers nothing then.
    _python = f'format("sparkjet-kafka"): {sys.executable} on {platform.node()}'
    raise AnalysisError(lacking(_python, [error.name or "it"], PACKAGES, "Python")) from error

__all__ = ["KafkaDataSource"]
