"""The protocol of sources whose broker keeps a message until it is acknowledged, and what sources share."""

from sparkjet.sources.acknowledging.contract import AcknowledgingSource, ConnectionLostError, Message
from sparkjet.sources.acknowledging.data_source import AcknowledgingDataSource

__all__ = ["AcknowledgingDataSource", "AcknowledgingSource", "ConnectionLostError", "Message"]
