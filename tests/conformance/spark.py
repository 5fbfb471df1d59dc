"""The Spark session behind the window operators that cases drive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from typing_extensions import Self

from tests.conformance.spark_operators import PARTITIONS, SparkSessions, SparkWindows

if TYPE_CHECKING:
    from types import TracebackType

    from sparkjet.time import WindowGrid
    from tests.conformance.window_setups import Aggregate


class SparkWindowDrivers:
    """Creates operators on one Spark session, which starts with the first operator.

    Args:
        session: A running session to use; without one a local session is started, and stopped on leaving the context.
    """

    def __init__(self, session: SparkSession | None = None) -> None:
        self._own = session is None
        self._session = session
        self._isolated: SparkSession | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._own and self._session is not None:
            self._session.stop()
            self._session = self._isolated = None

    def open(self, window: WindowGrid, aggregate: Aggregate) -> SparkWindows:
        """An operator without state."""
        return SparkWindows(self._configured(), window, aggregate)

    def open_sessions(self, gap: int, aggregate: Aggregate) -> SparkSessions:
        """A session operator without state."""
        return SparkSessions(self._configured(), gap, aggregate)

    def _configured(self) -> SparkSession:
        if self._session is None:
            self._session = (
                SparkSession.builder.master("local[2]")
                .appName("sparkjet-conformance")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
            self._session.sparkContext.setLogLevel("ERROR")
        if self._isolated is None:
            # Settings of a separate session: the caller's must not change.
            self._isolated = self._session.newSession()
            self._isolated.conf.set("spark.sql.adaptive.enabled", "false")
            self._isolated.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
        return self._isolated
