"""Plain logs: a query writes Spark's offset and commit logs without Hadoop's detours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkjet.spark_line import LINE
from sparkjet.storage.paths import PLAIN_FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PACKAGE = "streaming.checkpointing" if LINE >= (4, 1) else "streaming"
_BY_FILE_SYSTEM = f"org.apache.spark.sql.execution.{_PACKAGE}.FileSystemBasedCheckpointFileManager"


class _Borrowed:
    """The settings of one session while queries start from it: set by the first of them, restored by the last."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._before = session.conf.get(_MANAGER, None)
        # Spark's query gets a copy of the session with all of this: the user's settings must stay in it, and ours are
        # removed again by `configure`.
        own_files = any(session.conf.get(name, None) is not None for name in PLAIN_FILES)
        self._settings = {_MANAGER: _BY_FILE_SYSTEM, **({} if own_files else PLAIN_FILES)}
        self.starts = 0

    def set(self) -> None:
        for name, value in self._settings.items():
            self._session.conf.set(name, value)

    def give_back(self) -> None:
        for name in self._settings:
            self._session.conf.unset(name)
        if self._before is not None:
            self._session.conf.set(_MANAGER, self._before)


_borrowed: dict[str, _Borrowed] = {}
_lock = threading.Lock()


@contextmanager
def plain_logs(session: SparkSession) -> Iterator[None]:
    """Let queries that start in this block write their logs this way; any number of threads may be in it at once.

    Spark's default for local files starts a dozen processes per micro-batch, to find out whether names are links. Its
    benefit, a rename that refuses to overwrite, protects a log that two drivers share. These logs belong to one run
    alone, and are rebuilt from the record at each start.

    Spark reads these settings from the session from which the query is started, and a clone of it would not do: its
    queries are missing in ``spark.streams`` of the original, and unknown to the listeners there.
    """
    java: Any = session._jsparkSession
    identity = str(java.sessionUUID())
    with _lock:
        borrowed = _borrowed.get(identity)
        if borrowed is None:
            borrowed = _Borrowed(session)
            borrowed.set()
            _borrowed[identity] = borrowed
        borrowed.starts += 1
    try:
        # Without the lock: a start may wait for another query with the same id to end.
        yield
    finally:
        with _lock:
            borrowed.starts -= 1
            if not borrowed.starts:
                # A start that came in between would take our settings for the user's.
                del _borrowed[identity]
                borrowed.give_back()
