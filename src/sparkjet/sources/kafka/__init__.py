"""The source ``sparkjet-kafka``: Apache Kafka topics as a stream."""

import platform
import sys

from sparkjet.errors import AnalysisError, lacking

PACKAGES = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
"""Packages that the driver, its planner and the executors need, by the name that is imported."""

try:
    from sparkjet.sources.kafka.source import KafkaDataSource
except ImportError as error:
    # Also in Spark's workers, one of which plans batches on the driver's machine; their errors arrive as text.
    _python = f'format("sparkjet-kafka"): {sys.executable} on {platform.node()}'
    raise AnalysisError(lacking(_python, [error.name or "it"], PACKAGES)) from error

__all__ = ["KafkaDataSource"]
