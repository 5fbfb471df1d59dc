"""Awaited executors: a warning where an epoch waits for an executor that does not come, which Spark does not say."""

from __future__ import annotations

import time
from collections.abc import Callable

from sparkjet.query_log import logger

PATIENCE = 60.0
"""Seconds; longer than a cluster takes to replace an executor."""


class AwaitedExecutors:
    """Looks whether a running epoch has executors; not thread-safe.

    Args:
        slots: How many tasks the registered executors run at once.
        patience: Seconds without any until it is said.
    """

    def __init__(self, slots: Callable[[], int], patience: float = PATIENCE) -> None:
        self._slots, self._patience = slots, patience
        self._since: float | None = None
        self._said = False

    def look(self) -> None:
        """Call it now and then while an epoch runs: between epochs, dynamic allocation may have released them all."""
        if self._slots():
            self._since, self._said = None, False
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since >= self._patience and not self._said:
            self._said = True
            logger.warning(
                "The application has had no executor for %.0f seconds, and the running epoch waits for one. If the "
                "cluster has resources, its master may not know the application: one of a standalone cluster that was "
                "started again without spark.deploy.recoveryMode does not, and gives it none any more. Then start the "
                "driver again; nothing is lost.",
                self._patience,
            )
