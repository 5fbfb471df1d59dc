"""Users' Python functions with state: Spark's ``applyInPandasWithState`` and ``transformWithState``."""
