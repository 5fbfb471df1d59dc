"""Putting versions into the log of a Delta table, as called by Kernel."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyspark.java_gateway import ensure_callback_server_started

from sparkjet.connectors.delta.log import file_of
from sparkjet.java import end_callback, java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

LOG = "_delta_log"
KERNEL, DEFAULTS = "io.delta.kernel", "io.delta.kernel.defaults"


class LogCommitter:
    """Kernel's committer: puts a version into the log, for the JVM to call."""

    def __init__(self, session: SparkSession, directory: Directory) -> None:
        ensure_callback_server_started(session.sparkContext._gateway)
        self._session, self._directory = session, directory
        self.told: str | None = None
        """The version's ``userMetadata`` in the history; None for one that only creates the table."""
        self.is_blind = True
        """Whether files are only added, whatever is read."""
        self.has_lost = False
        """Whether another process has put the version first."""
        self.failure: Exception | None = None
        """Why it could not be put: Java passes on only the text of a failure."""

    def commit(self, engine: Any, rows: Any, metadata: Any) -> Any:
        """Put a version, for Kernel; fails if another process has put it first."""
        del engine  # it would write with Delta's own stores
        try:
            return self._put(rows, metadata)
        except _LostError:
            self.has_lost = True
            raise
        except Exception as error:
            self.failure = error
            raise
        finally:
            end_callback(self._session)

    def _put(self, rows: Any, metadata: Any) -> Any:
        written = static_method(self._session, f"{DEFAULTS}.internal.json.JsonUtils.rowToJson")
        lines: list[str] = []
        while rows.hasNext():
            lines.append(self._line(written(rows.next())))
        name = file_of(metadata.getVersion())
        content = "".join(f"{line}\n" for line in lines).encode()
        if not self._directory.below(LOG).put(name, content):
            raise _LostError(name)
        status = static_method(self._session, f"{KERNEL}.utils.FileStatus.of")(
            metadata.getPublishedDeltaFilePath(), len(content), int(time.time() * 1000)
        )
        parsed = static_method(self._session, f"{KERNEL}.internal.files.ParsedPublishedDeltaData.forFileStatus")
        return java_class(self._session, f"{KERNEL}.commit.CommitResponse")(parsed(status))

    def _line(self, action: str) -> str:
        """An action as written; that of the commit itself says more than Kernel lets its callers say."""
        if self.told is None or not action.startswith('{"commitInfo"'):
            return action
        found = json.loads(action)
        # Others that delete or compact rows need not give way to blind appends.
        found["commitInfo"] |= {"isBlindAppend": self.is_blind, "userMetadata": self.told}
        return json.dumps(found, separators=(",", ":"))

    class Java:
        """The Java interface that it implements."""

        implements = ("io.delta.kernel.commit.Committer",)


class _LostError(Exception):
    """Another process has put this version into the log."""
