"""What Spark sends to its Python workers: whether it can be."""

from __future__ import annotations

import pickle

from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError


def check_sendable(sent: object, method: str, way_out: str) -> None:
    """Refuse a function or object of the user's that cannot be sent, e.g. as it uses a query, a session or a lock.

    On the driver, before a query starts: the first batch would fail instead.
    """
    # On use only: it takes its time.
    from pyspark import cloudpickle  # noqa: PLC0415

    try:
        cloudpickle.dumps(sent)
    except (pickle.PicklingError, PySparkException, TypeError, AttributeError) as error:
        why = str(error).rstrip(".")
        message = f"{method}: the {type(sent).__name__} cannot be sent to the executors: {why}. {way_out}"
        raise AnalysisError(message) from error
