"""The source ``sparkjet-kafka``: Apache Kafka topics as a stream."""

from sparkjet.errors import AnalysisError

try:
    from sparkjet.sources.kafka.source import KafkaDataSource
except ImportError as error:
    _message = f'format("sparkjet-kafka") needs {error.name}: pip install "sparkjet[kafka]".'
    raise AnalysisError(_message) from error

__all__ = ["KafkaDataSource"]
