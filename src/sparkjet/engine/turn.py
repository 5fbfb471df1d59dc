"""The turn: who may use an engine now, and which threads work for it."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from sparkjet.java import GONE
from sparkjet.query_log import begin, end
from sparkjet.storage.read_back import activated, deactivate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Turn:
    """Taken by everything that uses an engine, one thread at a time.

    The code that users give to a query (functions, listeners, sinks, policies, clocks) is called in the threads for
    which :attr:`is_ours` is true. If it waited there for the turn, or for the end of the query, it would wait for
    itself. A thread that such a function starts is not known here. These threads have an active session, like Spark's
    own thread: a function that reads a table of ``SparkSession.getActiveSession()`` must not depend on which thread
    calls it.

    Args:
        query: The name of the query in the log lines of these threads.
        session: The session that is made active in a thread that has none.

    >>> turn = Turn()
    >>> with turn:
    ...     turn.is_ours, turn.is_taken, turn.take(timeout=0.01)
    (True, True, False)
    >>> turn.is_ours, turn.is_taken
    (False, False)
    """

    def __init__(self, query: object = None, session: SparkSession | None = None) -> None:
        self._query = query
        self._session = session
        self._lock = threading.Lock()
        self._here = threading.local()

    def take(self, timeout: float = -1) -> bool:
        """Wait for the turn; False if that takes longer than ``timeout`` seconds, forever by default."""
        taken = self._lock.acquire(timeout=timeout)
        if taken:
            self._here.ours = True
            self._here.log = begin(self._query)
            self._here.activated = self._activate()
        return taken

    def give_back(self) -> None:
        """End the turn, in the thread that has taken it."""
        try:
            if self._here.activated and self._session is not None:
                # If the JVM is gone, so are its threads.
                with contextlib.suppress(*GONE):
                    deactivate(self._session)
        finally:
            self._here.ours = False
            end(self._here.log)
            self._lock.release()

    def enlist(self) -> None:
        """Let the calling thread work for the owner of the turn as long as it lives; it never takes the turn itself."""
        self._here.ours = True
        begin(self._query)
        self._activate()

    def _activate(self) -> bool:
        # Without the JVM, whatever this thread does will report that.
        with contextlib.suppress(*GONE):
            return self._session is not None and activated(self._session)
        return False

    @property
    def is_taken(self) -> bool:
        """Whether any thread has the turn."""
        return self._lock.locked()

    @property
    def is_ours(self) -> bool:
        """Whether the calling thread has the turn, or works for the threads that have it."""
        return getattr(self._here, "ours", False)

    def __enter__(self) -> None:
        """See :meth:`take`."""
        self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """See :meth:`give_back`."""
        self.give_back()
