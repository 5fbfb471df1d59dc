"""Queries for which Spark generates no code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_PROJECTIONS = "spark.sql.codegen.factoryMode"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", _PROJECTIONS: "NO_CODEGEN"}
"""Spark's own settings for evaluating expressions without compiling code for each query."""


@contextmanager
def interpreted(session: SparkSession) -> Iterator[None]:
    """Has Spark generate no code for a while: it would take longer to compile than to run."""
    with _set(session, INTERPRETED):
        yield


@contextmanager
def copying(session: SparkSession) -> Iterator[None]:
    """Has Spark generate code for projections for a while: interpreted, it does not copy texts with a collation.

    What an aggregate has kept of one would be what has come into its place since (InternalRow.getWriter).
    """
    with _set(session, {_PROJECTIONS: "FALLBACK"}):
        yield


@contextmanager
def _set(session: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: str(session.conf.get(name)) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
