"""The end of a query: requested by its user, or caused by a failure or the end of its input."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from sparkjet.errors import FencedError, SparkjetError, chain
from sparkjet.storage.full_disk import full_disk


class Ending:
    """Whether a query ends, and with which failure; thread-safe.

    Args:
        fenced: Returns the error to end with if another driver has taken over, None if none has.
        places: Directories to which the query writes, to find out which one is full if a failure does not say.
        at_finish: Called once nothing of the query is running.
    """

    def __init__(
        self,
        fenced: Callable[[], FencedError | None],
        places: Sequence[Path] = (),
        at_finish: Callable[[], None] = lambda: None,
    ) -> None:
        self._fenced = fenced
        self._at_finish = at_finish
        self._places = places
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self.failure: BaseException | None = None
        """The error with which the query failed."""
        self._shown: tuple[BaseException | None, BaseException | None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether the user has requested the end."""
        return self._stopping.is_set()

    @property
    def begun(self) -> bool:
        """Whether no further epoch may begin."""
        return self._stopping.is_set() or self._finished.is_set() or self.failure is not None

    @property
    def finished(self) -> bool:
        """Whether nothing of the query is running."""
        return self._finished.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing of the query is running; False if that takes longer than ``timeout`` seconds."""
        return self._finished.wait(timeout)

    def finish(self) -> None:
        """Release everything that waits for the end."""
        try:
            self._at_finish()
        finally:
            self._finished.set()

    def ask(self, stop: Callable[[], None], name: str) -> None:
        """Request the end; the first call runs ``stop`` in a separate thread.

        Not in the caller's thread, whose patience may end before the epoch that has to be waited for.
        """
        with self._changing:
            if not self._stopping.is_set() and not self._finished.is_set():
                self._stopping.set()
                threading.Thread(target=stop, name=name, daemon=True).start()

    def fail(self, error: BaseException) -> None:
        """Keep the error with which the query failed; of several, the most informative one, followed by the others.

        A successor removes the checkpoint that Spark is still using here, so a driver that was taken over first fails
        with an error about missing files; its user must learn that it was taken over.
        """
        if not isinstance(error, FencedError):
            error = taken_over(error, self._fenced)
            error = full_disk(error, self._places) or error
        with self._changing:
            self.failure = error if self.failure is None else _joined(self.failure, error)

    @property
    def exception(self) -> BaseException | None:
        """The error with which the query failed, in the form for its user; the same object each time."""
        with self._changing:
            if self._shown is None or self._shown[0] is not self.failure:
                self._shown = self.failure, _as_spark(self.failure)
            return self._shown[1]

    def raise_failure(self) -> None:
        """Raise the error with which the query failed, if it did."""
        if (failure := self.exception) is not None:
            raise failure


def taken_over(error: BaseException, fenced: Callable[[], FencedError | None]) -> BaseException:
    """The error to report for a failure: if the query was taken over, the one from ``fenced``."""
    if not isinstance(error, FencedError):
        # The store may be what has failed.
        with contextlib.suppress(OSError, SparkjetError):
            found = fenced()
            if found is not None:
                found.__cause__ = error
                return found
    return error


def _as_spark(error: BaseException | None) -> BaseException | None:
    """An error of Spark or the JVM, in the form in which Spark raises it for a query; anything else as it is."""
    if not isinstance(error, PySparkException | Py4JError) or isinstance(error, StreamingQueryException):
        return error
    # With Spark's error condition, which programs check and with which the text begins.
    shown = StreamingQueryException(f"The query terminated with exception: {error}", "STREAM_FAILED", {})
    shown.__cause__ = error
    return shown


def _joined(first: BaseException, other: BaseException) -> BaseException:
    """The first of two errors, with the other one at the end of its chain.

    One failure often causes another, and which one is noticed first is chance. Spark's is the least informative.
    """
    if isinstance(first, StreamingQueryException) and not isinstance(other, StreamingQueryException):
        first, other = other, first
    known = chain(first)
    # Appending an error that is already in the chain would create a cycle.
    if not any(each is one for each in chain(other) for one in known):
        known[-1].__context__, known[-1].__suppress_context__ = other, False
    return first
