"""The built-in aggregates behind sparkjet.functions, one kind of accumulator per module."""
