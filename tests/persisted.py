"""What executors hold: compared before and after, as other tests of the session leave something too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def persisted(session: SparkSession) -> set[int]:
    """The ids of the RDDs that are persisted."""
    return {int(rdd) for rdd in session.sparkContext._jsc.getPersistentRDDs()}
