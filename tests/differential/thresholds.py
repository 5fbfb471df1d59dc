"""Numbers from which sparkjet takes another way, lowered: few rows never reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

LOW = {
    "sparkjet.windows.stacks.MANY": 1,
    "sparkjet.windows.sliding.LARGE": 0,
    "sparkjet.windows.sliding.FEWEST": 2,
    "sparkjet.windows.sliding._PATIENT": 2,
    "sparkjet.windows.sliding._COMBINED": 1,
    "sparkjet.windows.running._CHUNK": 2,
    "sparkjet.state.segments.FEWEST": 2,
    "sparkjet.state.segments.LARGE": 0,
    "sparkjet.state.segments.MANY": 2,
    "sparkjet.state.keyed_store._REWRITTEN": 0,
    "sparkjet.stateful.interval_join.MANY": 1,
    "sparkjet.engine.stage_state.FEW": 0,
    "sparkjet.plan.inputs.MOST_FIXED": 1,
}
"""By the places that read them."""


@contextmanager
def lowered() -> Iterator[None]:
    """As if rows were many: segments are merged at once, blocks of windows are read frame by frame."""
    patches = [patch(name, value) for name, value in LOW.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
