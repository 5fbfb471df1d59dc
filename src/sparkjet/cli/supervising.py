"""``run``: runs an application, and restarts it when it ends with an error."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkjet.errors import AnalysisError
from sparkjet.query_log import logger


@dataclass(frozen=True)
class Backoff:
    """Pauses before an application is restarted.

    Attributes:
        first: Seconds before the first restart; each later pause is twice as long.
        longest: The longest pause.
        healthy: Seconds after which an application counts as having run: the next pause is ``first`` again.
    """

    first: float = 1.0
    longest: float = 60.0
    healthy: float = 300.0

    def after(self, pause: float | None, ran: float) -> float:
        """The next pause.

        >>> Backoff().after(None, 2.0), Backoff().after(40.0, 2.0), Backoff().after(40.0, 400.0)
        (1.0, 60.0, 1.0)
        """
        return self.first if pause is None or ran >= self.healthy else min(2 * pause, self.longest)


def run_one(application: str, arguments: Sequence[str], *, restart: bool) -> int:
    """Run an application, with Python if it is a Python file; returns its exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    interpreter = [sys.executable] if application.endswith(".py") else []
    return supervise([*interpreter, application, *arguments], Backoff() if restart else None)


def supervise(command: Sequence[str], backoff: Backoff | None) -> int:
    """Run a program until it ends without an error; returns its exit status.

    SIGTERM and SIGINT are passed on, and end the supervision with the program. In the main thread only.

    Args:
        command: The program and its arguments.
        backoff: Pauses before it is restarted; None if it is not.

    Raises:
        AnalysisError: There is no such program, or it cannot be started.
    """
    asked = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, _: Any) -> None:
        asked.set()
        for process in running:
            process.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return _supervised(command, backoff, asked, running)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _supervised(
    command: Sequence[str], backoff: Backoff | None, asked: threading.Event, running: list[subprocess.Popen[bytes]]
) -> int:
    pause: float | None = None
    while True:
        began = time.monotonic()
        # In its own session: otherwise Ctrl-C would reach it twice.
        try:
            process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - what the user asks for
        except OSError as error:
            message = (
                f'run: "{command[0]}" cannot be started: {error.strerror}. Name a Python file, or a program that is on '
                "the PATH and executable."
            )
            raise AnalysisError(message) from error
        running[:] = [process]
        if asked.is_set():
            # It came while the process was being started.
            process.terminate()
        status = process.wait()
        running.clear()
        if status == 0 or backoff is None or asked.is_set():
            return status if status >= 0 else 128 - status
        pause = backoff.after(pause, time.monotonic() - began)
        logger.warning("%s has ended with %d; it is started again in %.0f s", command[0], status, pause)
        if asked.wait(pause):
            return 0
