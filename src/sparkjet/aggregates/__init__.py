"""The built-in aggregates, one kind of accumulator per module."""
