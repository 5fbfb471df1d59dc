"""The steps of a start or a recovery: reported once a second while they take long, so that nobody thinks it hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from sparkjet.query_log import about, current, logger

EVERY = 1.0
"""Seconds between two lines; a step that is done sooner reports nothing."""
_BAR = 20
_USUAL = 80


class StartSteps:
    """Reports the current step: in lines of the log or, on a terminal, in one that is overwritten, with a progress bar.

    Args:
        stream: Where a terminal may be; by default standard error.
        every: Seconds between two lines.
    """

    def __init__(self, stream: TextIO | None = None, every: float = EVERY) -> None:
        self._stream = stream
        self._every = every
        self._what: tuple[str, int | None] = "starting", None
        self._done = 0

    def at(self, what: str, total: int | None = None) -> None:
        """Note what is done from now on, and in how many parts, if that is known."""
        self._what, self._done = (what, total), 0

    def one(self) -> None:
        """Note that one of the parts is done."""
        self._done += 1

    @contextmanager
    def told(self) -> Iterator[None]:
        """Report the steps of a block."""
        ended, began = threading.Event(), time.monotonic()
        # Not at definition: a notebook, or a test, may replace it.
        stream = sys.stderr if self._stream is None else self._stream
        on_terminal, query = _is_terminal(stream), current()

        def tell() -> None:
            with about(query):
                while not ended.wait(self._every):
                    line = self.line(time.monotonic() - began, bar=on_terminal)
                    if on_terminal:
                        # In one row: of a longer line, only the last row would be overwritten.
                        _write(stream, f"\r\x1b[K{line[: _columns(stream) - 1]}")
                    else:
                        logger.info("%s", line)

        thread = threading.Thread(target=tell, name="sparkjet-start", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if on_terminal and time.monotonic() - began > self._every:
                _write(stream, "\r\x1b[K")

    def line(self, seconds: float, *, bar: bool = False) -> str:
        """The line that is reported after some seconds.

        >>> steps = StartSteps()
        >>> steps.at("restoring the state", 4)
        >>> steps.one()
        >>> steps.line(7.2), steps.line(7.2, bar=True)
        ('restoring the state, 1 of 4 (7 s)', '[#####---------------] restoring the state, 1 of 4 (7 s)')
        """
        what, total = self._what
        if total is None:
            return f"{what} ({seconds:.0f} s)"
        done = min(self._done, total)
        filled = _BAR * done // max(total, 1)
        drawn = f"[{'#' * filled}{'-' * (_BAR - filled)}] " if bar else ""
        return f"{drawn}{what}, {done} of {total} ({seconds:.0f} s)"


def _is_terminal(stream: TextIO) -> bool:
    try:
        # Emacs, and the logs of builds, would show the escape sequences.
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):
        # None if there is no standard error, or closed; and its replacements in programs often only have write().
        return False


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL
    except (AttributeError, OSError, ValueError):
        return _USUAL


def _write(stream: TextIO, text: str) -> None:
    # The terminal was closed in the meantime: nobody looks, and the query continues.
    with suppress(OSError, ValueError):
        stream.write(text)
        stream.flush()
