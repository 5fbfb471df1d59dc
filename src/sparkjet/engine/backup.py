"""Backups: every n-th snapshot is copied to a second home, in the background."""

from __future__ import annotations

import logging
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING

from sparkjet.engine.progress_report import BackupReport
from sparkjet.errors import AnalysisError, SparkjetError
from sparkjet.query_log import logger
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.schemes import is_within

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory


OPTION = "snapshotBackup"


class Backup:
    """Copies a query's newest snapshot every ``every`` epochs; a failure is logged, and the next copy tries again.

    Epochs do not wait for it, and no copy begins while another one is running.

    Args:
        home: The query's home.
        target: The home of the copy.
        every: Number of epochs from one copy to the next, over all runs.

    Raises:
        AnalysisError: A copy in the target would be inside the home.
    """

    def __init__(self, home: Directory, target: Directory, every: int) -> None:
        self._home, self._target, self._every = home, target, every
        own, other = home.resolved(), target.resolved()
        if is_within(other, own) or is_within(own, f"{other}/snapshots"):
            same = "" if str(home) == str(target) else f', which is "{other}"'
            message = (
                f'{OPTION}: "{target}"{same} is not apart from the home of this query, "{home}": what is lost with the '
                "one is lost with the other. Give it a separate place, on another disk or in another store."
            )
            raise AnalysisError(message)
        self._running: threading.Thread | None = None
        self._tried = 0
        self._report = BackupReport(None, None)

    @property
    def report(self) -> BackupReport:
        """The state of this query's copies."""
        return self._report

    def begin(self, newest: Record | None) -> None:
        """Find out how far the copy has come; called before the query starts, with its newest record."""
        try:
            held = RecordLog(DirectoryStore(self._target.below("snapshots"))).newest()
        except (OSError, SparkjetError):
            # The first copy will fail for the same reason, and report it.
            return
        if newest is not None and held is not None and held[1].query == newest.query:
            self._tried = held[1].epoch
            self._report = BackupReport(held[1].epoch, None)

    def after_epoch(self, epoch: int) -> None:
        """Begin a copy if one is due; on the driver, after each epoch."""
        if epoch - self._tried >= self._every and not (self._running and self._running.is_alive()):
            self._tried = epoch
            self._running = threading.Thread(
                target=copy_context().run, args=(self._copy,), name="sparkjet backup", daemon=True
            )
            self._running.start()

    def finish(self) -> None:
        """Wait for the copy that is in progress."""
        if self._running is not None:
            self._running.join()

    def _copy(self) -> None:
        try:
            slot, record, _ = copy_newest(self._home, self._target, OPTION)
        except (OSError, SparkjetError) as error:
            # The query does not depend on the copy; its user will, one day: no copy is worse than an old one.
            has_none = self._report.epoch is None
            self._report = BackupReport(self._report.epoch, str(error))
            said = "has no copy at all" if has_none else f"has no newer copy than that of epoch {self._report.epoch}"
            level = logging.ERROR if has_none else logging.WARNING
            logger.log(level, "%s: %s %s: %s", OPTION, self._target, said, error)
        else:
            self._report = BackupReport(record.epoch, None)
            logger.info("%s: record %d, epoch %d, is in %s", OPTION, slot, record.epoch, self._target)
