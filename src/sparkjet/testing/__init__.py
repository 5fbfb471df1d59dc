"""Tools to test queries and extensions with: a driver for queries, the laws of aggregates, contract suites."""

from sparkjet.testing.collecting_sink import CollectingSink
from sparkjet.testing.laws import check_aggregate
from sparkjet.testing.stream_driver import StreamDriver

__all__ = ["CollectingSink", "StreamDriver", "check_aggregate"]
