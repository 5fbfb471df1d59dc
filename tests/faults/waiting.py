"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE = 300.0
"""Seconds; far more than needed, because a busy machine must not look like a fault."""
_pause = threading.Event()


def holds_within(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds or the time is up; returns whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        _pause.wait(0.05)
    return True


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; it must."""
    assert holds_within(condition, seconds), f"waited {seconds:.0f} s for {what}"


def let_pass(seconds: float) -> None:
    """Let time pass that is itself part of the fault: there is nothing to wait for."""
    _pause.wait(seconds)
