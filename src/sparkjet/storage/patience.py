"""Patience: how long a store that does not answer is retried before the query ends."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sparkjet.errors import StorageError
from sparkjet.query_log import logger

T = TypeVar("T")

SECONDS = 60.0
"""Seconds until a store is given up, in addition to the waiting of its client."""
_ANSWERS = FileExistsError, FileNotFoundError, PermissionError
JUST_NOW = 0.5
"""Seconds for which an answer of a store shows that it is there: as long as a small job that writes to it takes."""
_PARTS = 12
"""Divides the patience: the longest pause between two attempts is one part, and the first pause such a part of that."""


class Patience:
    """Retries what may be repeated, until the store answers or has been away for too long.

    Shared by all directories of a file system: once it is given up, whatever a failing query still does to end (undoing
    what it has prepared, looking for a successor) is tried once each, until something has succeeded. Thread-safe.

    Args:
        seconds: How long a store may be away.
        has_answered: Whether the store has answered already. One that never has is not waited for: its location may be
            wrong, and the caller says so.
    """

    def __init__(self, seconds: float = SECONDS, *, has_answered: bool = False) -> None:
        self._seconds, self._has_answered = seconds, has_answered
        self._away_since: float | None = None
        self._answered_at = -math.inf

    @property
    def has_just_answered(self) -> bool:
        """Whether the store has answered so lately that asking whether it is there would only repeat that."""
        return time.monotonic() - self._answered_at < JUST_NOW

    def run(self, attempt: Callable[[], T]) -> T:
        """The eventual result of ``attempt``; an :class:`OSError` that is an answer of the store is raised at once."""
        pause = self._seconds / _PARTS**2
        first: float | None = None
        while True:
            try:
                found = attempt()
            except _ANSWERS:
                self._answered()
                raise
            except OSError as error:
                if not self._has_answered:
                    raise
                now = time.monotonic()
                # Not from the beginning of the call: a client may take the whole time for its own attempts.
                first = first or now
                since = self._away_since
                if since is None:
                    self._away_since = since = now
                    logger.warning("%s: %s It is tried again.", error.filename, error.strerror)
                # Not only since the outage began: other calls may succeed all the time, and postpone its beginning.
                if now + pause - min(first, since) > self._seconds:
                    self._away_since = -math.inf
                    message = (
                        f"{error.filename} could not be used for {self._seconds:.0f} s: {error.strerror} Nothing is "
                        "lost: start the query again when the store answers; it goes on where it stopped."
                    )
                    raise StorageError(message) from error
                threading.Event().wait(pause)
                pause = min(2 * pause, self._seconds / _PARTS)
            else:
                self._answered()
                return found

    def _answered(self) -> None:
        self._away_since, self._has_answered = None, True
        self._answered_at = time.monotonic()
