"""The session that tests of plans share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A separate session without adaptive execution, as that of a query."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "false")
    own.conf.set("spark.sql.shuffle.partitions", "2")
    return own
