"""Queries for which Spark generates no code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark's own settings for evaluating expressions without compiling code for each query."""


@contextmanager
def interpreted(session: SparkSession) -> Iterator[None]:
    """Has Spark generate no code for a while: it would take longer to compile than to run."""
    before = {name: str(session.conf.get(name)) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
