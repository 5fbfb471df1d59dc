"""Checks that objects can be sent to Spark's Python workers."""

from __future__ import annotations

import pickle

from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError


def check_sendable(sent: object, method: str, way_out: str) -> None:
    """Refuse a user's function or object that cannot be sent, e.g. because it uses a query, a session or a lock.

    Runs on the driver, before a query starts: otherwise the first batch would fail.
    """
    # On use only: it takes a while.
    from pyspark import cloudpickle  # noqa: PLC0415

    try:
        cloudpickle.dumps(sent)
    except (pickle.PicklingError, PySparkException, TypeError, AttributeError) as error:
        why = str(error).rstrip(".")
        message = f"{method}: the {type(sent).__name__} cannot be sent to the executors: {why}. {way_out}"
        raise AnalysisError(message) from error
