"""Calls in every order: how each ends, and how those end that threads make at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds after which a test fails that would hang otherwise."""


def outcome(action: Callable[[], object]) -> str:
    """How a call ends."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - what these tests are about
        return f"{type(error).__name__}: {error}"
    return "done"


def at_once(*actions: Callable[[], object]) -> list[str]:
    """How calls end that threads make at the same time."""
    found = ["hangs"] * len(actions)
    together = threading.Barrier(len(actions))

    def run(number: int) -> None:
        together.wait(PATIENCE)
        found[number] = outcome(actions[number])

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return found
