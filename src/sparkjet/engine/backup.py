"""Backups: every n-th snapshot is copied to a second home, in the background."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from sparkjet.errors import SparkjetError
from sparkjet.snapshots.copying import copy_newest

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

logger = logging.getLogger("sparkjet")


class Backup:
    """Copies a query's newest snapshot every so many epochs; what fails is logged, and tried again at the next.

    Epochs do not wait for it, and while one copy lasts no other begins.

    Args:
        home: The query's home.
        target: Where the copy is.
        every: Number of epochs from one copy to the next.
    """

    def __init__(self, home: Directory, target: Directory, every: int) -> None:
        self._home, self._target, self._every = home, target, every
        self._running: threading.Thread | None = None
        self._since = 0

    def after_epoch(self) -> None:
        """Begin a copy if one is due; on the driver, after each epoch."""
        self._since += 1
        if self._since >= self._every and not (self._running and self._running.is_alive()):
            self._since = 0
            self._running = threading.Thread(target=self._copy, name="sparkjet backup", daemon=True)
            self._running.start()

    def finish(self) -> None:
        """Wait for the copy that is being made."""
        if self._running is not None:
            self._running.join()

    def _copy(self) -> None:
        try:
            slot, record, _ = copy_newest(self._home, self._target, "snapshotBackup")
        except (OSError, SparkjetError) as error:
            # The query does not depend on it; its user does, one day.
            logger.warning("snapshotBackup: %s has not got the newest snapshot: %s", self._target, error)
        else:
            logger.info("snapshotBackup: record %d, epoch %d, is in %s", slot, record.epoch, self._target)
