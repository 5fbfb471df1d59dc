"""Executors: noticing before an epoch that one has gone, with what it held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.storage.sharing import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Executors:
    """The executors that Spark knows, on the driver.

    Args:
        session: The query's session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known = self._addresses()

    def lost(self) -> bool:
        """Whether one that was there at the last call has gone since; one question to the driver's own JVM."""
        before, self._known = self._known, self._addresses()
        return not before <= self._known

    def _addresses(self) -> frozenset[str]:
        if is_local(self._session):
            return frozenset()
        # With their ports: one that comes for another on the same machine is not the same.
        known = self._session.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet()
        return frozenset(known.mkString(" ").split())
